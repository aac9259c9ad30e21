// The scheduler alone, without a store and without agents: `sched.ts <benchmark> [options]`, one
// benchmark of docs/performance.md for each name. Decisions are exact on every size.
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { printReport } from '../report.js';
import { Violations } from '../violations.js';
import {
  runBasic,
  runConstraints,
  runHetero,
  runScale,
  runStorm,
  type SchedOptions,
} from './cases.js';
import { parseCpuSeconds, parseGoBenchmarks } from './go-benchmark.js';
import { runPreempt } from './preempt-case.js';
import { toMedianRounds } from './rounds.js';

/** Benchmarks with short cases are run several times, each time on new clusters. */
const ROUNDED = {
  basic: { run: runBasic, name: 'sched-basic' },
  hetero: { run: runHetero, name: 'sched-hetero' },
  constraints: { run: runConstraints, name: 'sched-constraints' },
};
const BENCHMARKS = {
  ...ROUNDED,
  preempt: { run: runPreempt, name: 'sched-preempt' },
  scale: { run: runScale, name: 'sched-scale' },
  storm: { run: runStorm, name: 'resched-storm' },
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    nodes: { type: 'string', default: '5000' },
    seed: { type: 'string', default: '1' },
    // CPU seconds of one case in one round; a slower scheduler makes fewer placements.
    budget: { type: 'string', default: '20' },
    // Rounds of the benchmarks with short cases; the report has the median round of each case.
    rounds: { type: 'string', default: '9' },
    // A command of a peer that prints Go benchmarks; runs after ours, in the same run.
    'peer-command': { type: 'string' },
    // Divides the numbers of replicas.
    divisor: { type: 'string', default: '1' },
  },
});
const [chosen = ''] = positionals;
const isBenchmark = (name: string): name is keyof typeof BENCHMARKS => name in BENCHMARKS;
const isRounded = (name: string): name is keyof typeof ROUNDED => name in ROUNDED;
if (!isBenchmark(chosen))
  throw new Error(`name one of the benchmarks ${Object.keys(BENCHMARKS).join(', ')}`);

/** Largest output of the command of a peer. */
const PEER_OUTPUT_BYTES = 64 * 1024 * 1024;
const violations = new Violations();
const options: SchedOptions = {
  seed: Number(values.seed),
  nodes: Number(values.nodes),
  budgetSeconds: Number(values.budget),
  divisor: Number(values.divisor),
  violations,
};
const { run, name } = BENCHMARKS[chosen];
// A warm-up: the compiler of Node.js optimises a part of the code before the first measured round.
run({ ...options, nodes: Math.min(1_000, options.nodes), budgetSeconds: 5 });
const rounds = Number(values.rounds);
const cases = isRounded(chosen)
  ? toMedianRounds(Array.from({ length: rounds }, () => ROUNDED[chosen].run(options)))
  : run(options);
const peer = values['peer-command'];

/** Runs the benchmark of a peer, and counts its CPU time by `times` of the shell. */
function runPeer(command: string): Readonly<Record<string, unknown>> {
  const { stdout, stderr, status } = spawnSync('sh', ['-c', `${command}\ntimes`], {
    encoding: 'utf8',
    maxBuffer: PEER_OUTPUT_BYTES,
  });
  violations.check(status === 0, `the command of the peer failed: ${stderr.slice(-500)}`);
  const benchmarks = parseGoBenchmarks(stdout);
  violations.check(benchmarks.length > 0, 'the command of the peer printed no Go benchmark');
  return { command, benchmarks, cpuSecondsOfTheWholeCommand: parseCpuSeconds(stdout) };
}

printReport(name, {
  nodes: chosen === 'scale' ? 'see cases' : options.nodes,
  seed: options.seed,
  budgetCpuSecondsPerCase: options.budgetSeconds,
  divisor: options.divisor,
  rounds: isRounded(chosen) ? rounds : 1,
  memoryMb: Math.round(process.memoryUsage.rss() / 1e6),
  cases,
  peer: peer === undefined ? 'left out: no --peer-command' : runPeer(peer),
  violations: violations.texts,
});
process.exit(violations.exitCode());
