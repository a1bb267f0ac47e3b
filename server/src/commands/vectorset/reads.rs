//! The commands that look at a set or at one element of it.

use skerry_resp::reply::Proto;
use skerry_vectorset::{Hit, Metric, Quantization};

use super::{Found, bulk_or_null, expect, present};
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::vector::with_reader;

pub(super) fn vcard(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VCARD")?;
    let len = present(ctx, args, found)?.map_or(0, |handle| handle.set.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

pub(super) fn vdim(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VDIM")?;
    let handle = present(ctx, args, found)?.ok_or(CommandError::text("ERR key does not exist"))?;
    ctx.reply.integer(i64::from(handle.set.params().dim));
    Ok(())
}

pub(super) fn vemb(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 3, "VEMB")?;
    if !args.from(3).all(|word| is_word(word, "RAW")) {
        return Err(CommandError::text("ERR invalid option"));
    }
    let Some(handle) = present(ctx, args, found)? else {
        ctx.reply.null();
        return Ok(());
    };
    let (set, element) = (&handle.set, args.get(2));
    if args.len() > 3 {
        match with_reader(|guard, _| set.raw(element, guard)) {
            Some(raw) => {
                ctx.reply.array(3 + usize::from(raw.range.is_some()));
                ctx.reply.simple(quantization_name(raw.kind));
                ctx.reply.bulk(&raw.blob);
                // Redis keeps the length in float32 and prints what that widens to.
                ctx.reply.double(f64::from(raw.l2 as f32));
                if let Some(range) = raw.range {
                    ctx.reply.double(f64::from(range));
                }
            }
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    match with_reader(|guard, _| set.vector(element, guard)) {
        Some(vector) => {
            ctx.reply.array(vector.len());
            vector.iter().for_each(|x| ctx.reply.double(f64::from(*x)));
        }
        None => ctx.reply.null(),
    }
    Ok(())
}

pub(super) fn vinfo(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VINFO")?;
    let Some(handle) = present(ctx, args, found)? else {
        ctx.reply.null_array();
        return Ok(());
    };
    let set = &handle.set;
    let params = set.params();
    let numbers = [
        ("hnsw-m", i64::from(params.m)),
        ("vector-dim", i64::from(params.dim)),
        ("projection-input-dim", handle.projection.as_ref().map_or(0, |p| i64::from(p.input_dim()))),
        ("size", set.len() as i64),
        ("max-level", with_reader(|guard, _| set.max_level(guard)) as i64),
        ("attributes-count", set.attributes_count() as i64),
        ("vset-uid", set.uid() as i64),
        ("hnsw-max-node-uid", set.max_node_uid() as i64),
    ];
    // Skerry's own field stands only where Redis has no such set.
    let metric = match params.metric {
        Metric::Cosine => None,
        Metric::L2 => Some("l2"),
        Metric::Ip => Some("ip"),
    };
    // Likewise: only sets of Redis's size in which the width of codes was looked at have it.
    let checked = set.checked_width();
    ctx.reply.map(1 + numbers.len() + usize::from(metric.is_some()) + 2 * usize::from(checked.is_some()));
    ctx.reply.simple("quant-type");
    ctx.reply.simple(quantization_name(params.quantization));
    if let Some(metric) = metric {
        ctx.reply.simple("metric");
        ctx.reply.simple(metric);
    }
    for (name, number) in numbers {
        ctx.reply.simple(name);
        ctx.reply.integer(number);
    }
    if let Some(checked) = checked {
        ctx.reply.simple("code-bits");
        ctx.reply.integer(i64::from(checked.bits));
        ctx.reply.simple("code-recall");
        ctx.reply.double((checked.recall * 1e4).round() / 1e4);
    }
    Ok(())
}

pub(super) fn vismember(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VISMEMBER")?;
    let handle = present(ctx, args, found)?;
    let is_member =
        handle.is_some_and(|handle| with_reader(|guard, _| handle.set.contains(args.get(2), guard)));
    ctx.reply.boolean(is_member);
    Ok(())
}

pub(super) fn vgetattr(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VGETATTR")?;
    let Some(handle) = present(ctx, args, found)? else {
        ctx.reply.null();
        return Ok(());
    };
    with_reader(|guard, _| bulk_or_null(ctx, handle.set.attribute(args.get(2), guard)));
    Ok(())
}

fn quantization_name(quantization: Quantization) -> &'static str {
    match quantization {
        Quantization::None => "f32",
        Quantization::Q8 => "int8",
        Quantization::Bin => "bin",
    }
}

/// VLINKS key element [WITHSCORES]: the neighbors, the highest level first.
pub(super) fn vlinks(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    let withscores = args.len() == 4 && is_word(args.get(3), "WITHSCORES");
    expect(args.len() == 3 || withscores, "VLINKS")?;
    let handle = present(ctx, args, found)?;
    with_reader(|guard, _| {
        let Some(levels) = handle.and_then(|handle| handle.set.links(args.get(2), guard)) else {
            ctx.reply.null();
            return;
        };
        ctx.reply.array(levels.len());
        levels.iter().rev().for_each(|level| reply_links(ctx, level, withscores));
    });
    Ok(())
}

fn reply_links(ctx: &mut Ctx<'_>, level: &[Hit<'_>], withscores: bool) {
    match (withscores, ctx.reply.proto()) {
        (false, _) => ctx.reply.array(level.len()),
        (true, Proto::Resp2) => ctx.reply.array(2 * level.len()),
        (true, Proto::Resp3) => ctx.reply.map(level.len()),
    }
    for link in level {
        ctx.reply.bulk(link.name);
        if withscores {
            ctx.reply.double(link.score);
        }
    }
}
