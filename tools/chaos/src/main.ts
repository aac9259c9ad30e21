// Chaos on real processes: see README.md. The run happens in a network namespace of its own, so
// that it reaches the machines of the cluster and ends with them.
import { USAGE, parseOptions } from './options.js';
import { formatTable, summarise } from './outcome.js';
import { runProgram } from './run-program.js';
import { runChaos } from './run.js';

await runProgram({
  name: 'chaos',
  usage: USAGE,
  parse: (args) => parseOptions(args, Date.now() % 1_000_000),
  listPrograms: () => ['etcd', 'nft'],
  run: async (options, print, stopSignal) => {
    print(`seed ${options.seed}`);
    const result = await runChaos(options, print, stopSignal);
    const violations = [
      ...result.outcomes.flatMap((outcome) =>
        outcome.violations.map((text) => `${outcome.fault} ${outcome.target}: ${text}`),
      ),
      ...result.finalViolations,
    ];
    print(
      `\n${formatTable(summarise(result.outcomes))}\n\n` +
        `${result.acknowledged} writes acknowledged, ${result.logLines} log lines followed, ` +
        `${result.history.writes} writes and ${result.history.reads} reads checked for one order, ` +
        `${violations.length} violations, seed ${options.seed}`,
    );
    const late = result.outcomes.flatMap((outcome) =>
      outcome.late.map((text) => `${outcome.fault} ${outcome.target}: ${text}`),
    );
    return { violations, late };
  },
});
