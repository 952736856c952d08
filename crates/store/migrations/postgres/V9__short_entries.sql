-- Entries of some kilobytes stay in their row: cut into pieces, each costs its append more than all the
-- rest.
ALTER TABLE entries SET (toast_tuple_target = 8160);
