-- What workers take limits on calls under way to be, a line each: the number, a blank, the limit's name.
ALTER TABLE workers ADD COLUMN limits TEXT NOT NULL DEFAULT '';
