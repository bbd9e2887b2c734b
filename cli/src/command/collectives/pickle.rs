//! Values in Python's pickle format, version 2: lists, maps, texts and numbers, but no code.

#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Text(String),
    List(Vec<Value>),
    Pair(Box<[Value; 2]>),
    Map(Vec<(&'static str, Value)>),
    /// A map whose keys are data.
    Table(Vec<(String, Value)>),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn number(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, 2];
        self.write(&mut bytes);
        bytes.push(b'.');
        bytes
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(b'N'),
            Self::Bool(truth) => out.push(if *truth { 0x88 } else { 0x89 }),
            Self::Integer(number) => {
                out.extend([0x8a, 8]);
                out.extend(number.to_le_bytes());
            }
            Self::Text(text) => put(out, text),
            Self::List(items) => {
                out.extend(*b"](");
                for item in items {
                    item.write(out);
                }
                out.push(b'e');
            }
            Self::Pair(items) => {
                for item in items.iter() {
                    item.write(out);
                }
                out.push(0x86);
            }
            Self::Map(items) => table(out, items.iter().map(|(key, value)| (*key, value))),
            Self::Table(items) => table(out, items.iter().map(|(key, value)| (key.as_str(), value))),
        }
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(text.as_bytes());
}

fn table<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = (&'a str, &'a Value)>) {
    out.extend(*b"}(");
    for (key, value) in items {
        put(out, key);
        value.write(out);
    }
    out.push(b'u');
}
