#!/usr/bin/env python3
"""Plants one bug at a time in a copy of a source file, links the simulator with it, and says what noticed.

tests/sim/mutations.py BUILD_DIR [--seeds 0..1999] [--only NAME,...]

BUILD_DIR holds a built `sim`. A planted bug costs one compilation and a link; nothing in the tree changes. The exit
status is 0 when every bug was noticed.
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name, what is wrong, file under src/, the right text (it must be there once), the wrong one; or lists of these
MUTATIONS = [
    ("skipped_checksum", "a copied or received unit is not compared with its checksum",
     "transport/shm/shm_mover.cc",
     "if (hash_copy_(copies_, after) != units[u].checksum) bad = u;", "hash_copy_(copies_, after);"),
    ("missed_generation", "D copies a block out of P's memory whatever its seal says of the owner, before and after",
     "transfer/sealed_copy.cc",
     ["if (!seal || *seal != kv::Seal{part.generation, part.tokens}) return stale(part);",
      "if (!seals_->unchanged(part_->from, part_->generation)) return stale(*part_);"],
     ["if (!seal) return stale(part);", ""]),
    ("freed_while_sent", "P gives blocks back that it is still sending",
     "transfer/producer_fsm.cc",
     "if (!offer.sealed || offer.sends > 0) return;", "if (!offer.sealed) return;"),
    ("missed_fence", "a pull ends while a copy into its blocks still runs",
     "transfer/consumer_fsm.cc",
     "if (std::ranges::any_of(pull.legs, [&](const LegId leg) { return legs_.at(leg).copying; })) return;", ""),
    ("double_free", "P's engine gives an offer's blocks back twice",
     "engine/handoff.cc",
     "blocks_.release_blocks(found->second.blocks);",
     "blocks_.release_blocks(found->second.blocks);\n    blocks_.release_blocks(found->second.blocks);"),
    ("leaked_blocks", "D keeps the blocks of a pull that was cancelled",
     "engine/handoff.cc", "blocks_.release_blocks(loading.held);", ""),
    ("lost_done", "D does not tell P that it has the KV",
     "transfer/consumer_peers.cc", "send(peer, wire::EndOffer{next_call_++, offer, farewell.done});", ""),
    ("lease_never_renewed", "D sends no heartbeat",
     "transfer/consumer_peers.cc", "send(peer, std::move(renew));", ""),
    ("lease_never_ends", "P keeps what nobody fetches",
     "transfer/producer_fsm.cc",
     "if (!offer->second.ended && offer->second.expires <= now) end(offer, EndReason::kExpired);", "(void)now;"),
    ("no_deadline", "a pull that waits for P is not looked at again",
     "transfer/consumer_fsm.cc",
     "if (!pull.ending) consider(pull.deadline);", ""),
    ("unverified_counts", "parts that failed are counted as here",
     "transfer/consumer_moving.cc",
     "for (size_t i = 0; i < good_parts && leg.verified < leg.end_item; ++i, ++leg.verified) {",
     "for (size_t i = 0; i <= good_parts && leg.verified < leg.end_item; ++i, ++leg.verified) {"),
    ("frame_out_of_turn", "a frame that came twice is stored as the next one",
     "transfer/consumer_moving.cc",
     "if (data.call == read.call && seen) return std::nullopt;", "(void)seen;"),
    ("bad_pull_is_good", "the engine takes a failed pull for all of the prompt",
     "engine/engine_core.cc",
     "scheduler_.finish_load(loaded.sequence, result.valid_tokens, result.state_valid);",
     "scheduler_.finish_load(loaded.sequence, sequence->size(), true);"),
    ("lost_seed", "P does not say which seed it drew",
     "engine/engine_core.cc", "if (record.seed_drawn) output.kv_transfer->baton_seed = record.seed;", ""),
    ("token_lost_in_resume", "the proxy resumes a stream without its last token",
     "proxy/request_resume.cc",
     "resume_ = ResumePoint{.prompt = prompt_ids_, .outputs = output_ids_, .seed = seed_, .baton = baton_};",
     "resume_ = ResumePoint{.prompt = prompt_ids_, .outputs = output_ids_, .seed = seed_, .baton = baton_};\n"
     "    if (resume_->outputs.size() > 1) resume_->outputs.pop_back();"),
    ("silent_end", "the proxy ends a stream that broke as if it were whole",
     "proxy/request_resume.cc",
     "if (!saw_finish_ || !plan_.hand_off) return false;", "if (!began_ || !plan_.hand_off) return false;"),
    ("charge_never_released", "the proxy goes on counting KV that P no longer holds",
     "proxy/request_fsm.cc",
     "if (kv_at_) instances_.release_kv(*std::exchange(kv_at_, std::nullopt), plan_.load);",
     "kv_at_.reset();"),
]


def commands(build, target):
    listed = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line and not line.startswith("ninja:")]


def compile_command(lines, source, mutant, output):
    line = next(l for l in lines if l.endswith(f"-c {ROOT / 'src' / source}"))
    words = [w for w in shlex.split(line)]
    for flag in ("-MT", "-MF"):
        at = words.index(flag)
        del words[at:at + 2]
    words.remove("-MD")
    words[words.index("-o") + 1] = str(output)
    words[words.index("-c") + 1] = str(mutant)
    return words + ["-Wno-error", "-O0"]  # the compilation is what takes long


def link_command(lines, mutant, output):
    words = shlex.split(re.sub(r"^: && | && :$", "", lines[-1]))
    words[words.index("-o") + 1] = str(output)
    # In front of the libraries: what it defines is not taken from them.
    words.insert(words.index("-o"), str(mutant))
    return words


def plant(scratch, lines, build, mutation):
    name, _, source, right, wrong = mutation
    text = (ROOT / "src" / source).read_text()
    pairs = [(right, wrong)] if isinstance(right, str) else zip(right, wrong)
    for old, new in pairs:
        if text.count(old) != 1:
            sys.exit(f"{name}: the text to change is {text.count(old)} times in src/{source}")
        text = text.replace(old, new)
    mutant = scratch / f"{name}.cc"
    mutant.write_text(text)
    subprocess.run(compile_command(lines, source, mutant, scratch / f"{name}.o"), cwd=build, check=True)
    subprocess.run(link_command(lines, scratch / f"{name}.o", scratch / name), cwd=build, check=True)
    return scratch / name


def what_noticed(binary, seeds):
    done = subprocess.run([binary, "--seeds", seeds, "--no-shrink"], capture_output=True, text=True, errors="replace")
    found = re.search(r"FAILED seed (\d+) kind (\S+): .*\n(.+)", done.stdout)
    return (int(found[1]), found[2], found[3]) if done.returncode == 1 and found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", default="0..1999")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    build = pathlib.Path(args.build).resolve()
    lines = commands(build, "sim")
    wanted = [m for m in MUTATIONS if not args.only or m[0] in args.only.split(",")]
    missed = 0
    print("| planted bug | in | what noticed |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mutation in wanted:
            noticed = what_noticed(plant(pathlib.Path(folder), lines, build, mutation), args.seeds)
            missed += noticed is None
            how = f"seed {noticed[0]} ({noticed[1]}): {noticed[2]}" if noticed else "**nothing**"
            print(f"| {mutation[1]} | `{mutation[2]}` | {how} |", flush=True)
    print(f"\n{len(wanted) - missed} of {len(wanted)} planted bugs noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
