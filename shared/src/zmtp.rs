//! temporary
use std::collections::VecDeque;
#[derive(Debug)]
pub struct Dealer {
    largest: usize,
    out: Vec<u8>,
    sent: usize,
    inn: Vec<u8>,
    greeted: bool,
    ready: bool,
    messages: VecDeque<Vec<u8>>,
    more: bool,
}
#[derive(Debug)]
pub struct Error;
impl Dealer {
    pub fn new(largest: usize) -> Self {
        let mut out = vec![0u8; 64];
        out[0] = 0xff;
        out[9] = 0x7f;
        out[10] = 3;
        out[11] = 1;
        out[12..16].copy_from_slice(b"NULL");
        Self {
            largest,
            out,
            sent: 0,
            inn: vec![],
            greeted: false,
            ready: false,
            messages: VecDeque::new(),
            more: false,
        }
    }
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.inn.extend_from_slice(bytes);
        if !self.greeted {
            if self.inn.len() < 64 {
                return Ok(());
            }
            if self.inn[0] != 0xff || self.inn[10] < 3 || &self.inn[12..17] != b"NULL\0" {
                return Err(Error);
            }
            self.inn.drain(..64);
            self.greeted = true;
            let mut body = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER".to_vec();
            body.extend_from_slice(b"\x08Identity\0\0\0\0");
            self.out.push(4);
            self.out.push(body.len() as u8);
            self.out.extend(body);
        }
        loop {
            if self.inn.len() < 2 {
                return Ok(());
            }
            let flags = self.inn[0];
            let (head, len) = if flags & 2 != 0 {
                if self.inn.len() < 9 {
                    return Ok(());
                }
                (9, u64::from_be_bytes(self.inn[1..9].try_into().unwrap()))
            } else {
                (2, u64::from(self.inn[1]))
            };
            if len > self.largest as u64 {
                return Err(Error);
            }
            let len = len as usize;
            if self.inn.len() < head + len {
                return Ok(());
            }
            let body: Vec<u8> = self.inn[head..head + len].to_vec();
            self.inn.drain(..head + len);
            if flags & 4 != 0 {
                if body.starts_with(b"\x05READY") {
                    self.ready = true;
                }
                if body.starts_with(b"\x05ERROR") {
                    return Err(Error);
                }
                continue;
            }
            let part = self.more || flags & 1 != 0;
            self.more = flags & 1 != 0;
            if !part {
                self.messages.push_back(body);
            }
        }
    }
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.messages.pop_front()
    }
    pub fn is_ready(&self) -> bool {
        self.ready
    }
    pub fn send(&mut self, m: &[u8]) {
        if m.len() < 256 {
            self.out.push(0);
            self.out.push(m.len() as u8);
        } else {
            self.out.push(2);
            self.out.extend((m.len() as u64).to_be_bytes());
        }
        self.out.extend_from_slice(m);
    }
    pub fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }
    pub fn written(&mut self, c: usize) {
        self.sent += c;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }
}
