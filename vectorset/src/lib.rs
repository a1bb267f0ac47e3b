//! skerry-vectorset
