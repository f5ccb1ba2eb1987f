// rust_program.rs: what Rust's standard library does at its start and for files, threads and
// processes, and a device through libibverbs; to be run under `simnic run`. Any rustc of the last
// years builds it, without crates.
use std::ffi::CStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::io::AsRawFd;
use std::os::raw::{c_char, c_int, c_void};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::mpsc;
use std::thread;

// Only what is passed on.
#[repr(C)]
struct IbvContext {
    _private: [u8; 0],
}

#[link(name = "ibverbs")]
extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
    fn ibv_get_device_name(device: *mut c_void) -> *const c_char;
    fn ibv_open_device(device: *mut c_void) -> *mut IbvContext;
    fn ibv_close_device(context: *mut IbvContext) -> c_int;
    fn ibv_query_gid(context: *mut IbvContext, port: u8, index: c_int, gid: *mut u8) -> c_int;
    fn ibv_alloc_pd(context: *mut IbvContext) -> *mut c_void;
    fn ibv_dealloc_pd(domain: *mut c_void) -> c_int;
    fn ibv_reg_mr(domain: *mut c_void, start: *mut u8, bytes: usize, access: c_int) -> *mut c_void;
    fn ibv_dereg_mr(region: *mut c_void) -> c_int;
}

const LOCAL_WRITE: c_int = 1;

fn files() {
    // The first statx() that fails has the library ask by statx(0, NULL, ...) whether there is one.
    assert!(fs::metadata("/nowhere/at/all").is_err());
    let path = std::env::temp_dir().join(format!("rust_program.{}", std::process::id()));
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"some bytes").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10);
    let copy = file.try_clone().unwrap();
    assert_ne!(copy.as_raw_fd(), file.as_raw_fd());
    let mut text = String::new();
    fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "some bytes");
    assert_eq!(fs::metadata(&path).unwrap().len(), 10);
    fs::remove_file(&path).unwrap();
    assert!(fs::metadata(&path).is_err());
}

fn threads() {
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (0..4u64)
        .map(|i| {
            let sender = sender.clone();
            thread::spawn(move || {
                for j in 0..100 {
                    sender.send(i * 100 + j).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    assert_eq!(receiver.iter().sum::<u64>(), 399 * 400 / 2);
    for worker in workers {
        worker.join().unwrap();
    }
}

fn processes() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through a pipe").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"through a pipe");
    assert!(Command::new("/nowhere/at/all").spawn().is_err());
}

fn device(name: &str) {
    unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&mut count);
        assert!(!list.is_null() && count == 2);
        let found = (0..count as usize)
            .map(|i| *list.add(i))
            .find(|d| CStr::from_ptr(ibv_get_device_name(*d)).to_str() == Ok(name));
        let context = ibv_open_device(found.unwrap());
        assert!(!context.is_null());
        ibv_free_device_list(list);
        let mut gid = [0u8; 16];
        assert_eq!(ibv_query_gid(context, 1, 3, gid.as_mut_ptr()), 0);
        assert_eq!(&gid[10..13], &[0xff, 0xff, 127]); // an IPv4 address as a GID
        let domain = ibv_alloc_pd(context);
        let mut memory = vec![0u8; 100_000];
        let region = ibv_reg_mr(domain, memory.as_mut_ptr(), memory.len(), LOCAL_WRITE);
        assert!(!domain.is_null() && !region.is_null());
        assert!(ibv_reg_mr(domain, ptr::null_mut(), 100, LOCAL_WRITE).is_null());
        assert_eq!(ibv_dereg_mr(region), 0);
        assert_eq!(ibv_dealloc_pd(domain), 0);
        assert_eq!(ibv_close_device(context), 0);
    }
}

// With the word "files" it asks for no device.
fn main() {
    files();
    threads();
    processes();
    if std::env::args().nth(1).as_deref() == Some("files") {
        return;
    }
    device("mlx5_0");
    let both: Vec<_> =
        ["mlx5_0", "mlx5_1"].iter().map(|name| thread::spawn(move || device(name))).collect();
    for one in both {
        one.join().unwrap();
    }
    // Now that the device's handler is in place.
    files();
    threads();
    processes();
    println!("all well");
}
