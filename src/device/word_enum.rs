//! An enum of words: each variant is its own word, and a word of a later version is kept as it is.

/// Makes the enum, with `word`, `Display` and `From<String>`; the words stand nowhere else.
macro_rules! word_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $word:ident,)+ }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $word,)+
            Other(String),
        }

        impl $name {
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$word => stringify!($word),)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $(stringify!($word) => Self::$word,)+
                    _ => Self::Other(word),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

pub(crate) use word_enum;
