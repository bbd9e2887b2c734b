use proptest::prelude::*;

use super::*;

fn names(list: &str) -> Vec<String> {
    let hosts = Hosts::from_list(list, BasePort::DEFAULT);
    assert_eq!(hosts.warnings, []);
    hosts.endpoints.iter().map(ToString::to_string).collect()
}

fn complaint(list: &str) -> String {
    let hosts = Hosts::from_list(list, BasePort::DEFAULT);
    assert_eq!(hosts.endpoints, []);
    hosts.warnings[0].to_string()
}

#[test]
fn names_ranges_and_ports() {
    assert_eq!(names("a,b:19000"), ["a", "b:19000"]);
    assert_eq!(names("node[08-11]"), ["node08", "node09", "node10", "node11"]);
    assert_eq!(names("node[001-002,200]x"), ["node001x", "node002x", "node200x"]);
    assert_eq!(names("r[1-2]n[3-4]:20000"), ["r1n3:20000", "r1n4:20000", "r2n3:20000", "r2n4:20000"]);
    assert_eq!(names("127.0.0.[1-2]"), ["127.0.0.1", "127.0.0.2"]);
    assert_eq!(names("[1-2]node"), ["1node", "2node"]);
    assert_eq!(names("a,a,a:18889"), ["a"]);
}

#[test]
fn an_ipv6_address_is_no_range() {
    assert_eq!(names("[::1]:19000,[fe80::1%eth0]"), ["[::1]:19000", "[fe80::1%eth0]"]);
    assert!(complaint("::1").contains("in brackets"));
    assert!(complaint("[::1]x").contains("[::1]:18889"));
    assert!(complaint("[::zz]").contains("is not an IPv6 address"));
}

#[test]
fn every_error_shows_the_correct_form() {
    assert!(complaint("node[1-").contains("write node[1-8]"));
    assert!(complaint("node]").contains("write node[1-8]"));
    assert!(complaint("node[a-b]").contains("node[001-128,200]"));
    assert!(complaint("node[]").contains("node[001-128,200]"));
    assert!(complaint("node[8-1]").contains("write 1-8"));
    assert!(complaint("a:99999").contains("1 to 65533"));
    assert!(complaint("a:").contains("1 to 65533"));
    assert!(complaint("sch\u{f6}n").contains("letters"));
    assert!(complaint("").contains("a,b"));
}

#[test]
fn a_range_too_large_is_refused_before_it_is_made() {
    assert!(complaint("n[1-100000000]").contains("100000 hosts"));
    assert!(complaint("n[0-18446744073709551615]").contains("100000 hosts"));
    assert!(complaint("n[0-18446744073709551615,1-9]").contains("100000 hosts"));
    assert!(complaint("n[1-99999][1-99999][1-99999][1-99999]").contains("100000 hosts"));
    let hosts = Hosts::from_list("n[1-60000],m[1-60000],k[1-40000]", BasePort::DEFAULT);
    assert_eq!((hosts.endpoints.len(), hosts.warnings.len()), (100_000, 1));
}

#[test]
fn valid_lines_of_a_file_are_kept_and_the_invalid_one_is_named() {
    let text = "# head\n\na slots=8 max_slots=8\nb c\nnode[2-1]  # why\n  d:20000 # four\r\n";
    let hosts = Hosts::from_lines(text, "hosts.txt", BasePort(30_000));
    let endpoints: Vec<_> = hosts.endpoints.iter().map(ToString::to_string).collect();
    assert_eq!(endpoints, ["a:30000", "d:20000"]);
    let warnings: Vec<_> = hosts.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].starts_with("hosts.txt:4: `c` is neither"), "{warnings:?}");
    assert!(warnings[1].starts_with("hosts.txt:5: the range `2-1` is descending"), "{warnings:?}");
}

#[test]
fn an_unsuitable_file_is_refused_in_few_lines() {
    let hosts = Hosts::from_lines(&"what is this\n".repeat(5000), "x", BasePort::DEFAULT);
    assert_eq!(hosts.warnings.len(), MOST_WARNINGS);
    assert!(hosts.warnings.last().unwrap().what.ends_with("(and 4980 more like it)"));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in r"[\[\]0-9a-z:,.% =#\n-]{0,60}") {
        let hosts = Hosts::from_lines(&text, "f", BasePort::DEFAULT);
        prop_assert!(hosts.endpoints.len() <= MOST_HOSTS);
        Hosts::from_list(&text, BasePort::DEFAULT);
    }

    #[test]
    fn a_range_has_as_many_names_as_it_counts(from in 0_u64..500, more in 0_u64..50, zeros in 0_usize..4) {
        let first = format!("{}{from}", "0".repeat(zeros));
        let all = names(&format!("n[{first}-{}]", from + more));
        prop_assert_eq!(all.len() as u64, more + 1);
        prop_assert!(all.iter().all(|name| name.len() > first.len()));
    }
}
