//! skerry-resp
