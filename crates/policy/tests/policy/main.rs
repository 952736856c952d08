//! Policy documents through the public door: what is refused when it is loaded, and what is answered.

mod answers;
mod arguments;
mod asking;
mod loading;
mod shop;
