//! skerry-server
