/** One line of the output of a Go benchmark. */
export interface GoBenchmark {
  readonly name: string;
  readonly runs: number;
  /** Wall time of a run, seconds. */
  readonly seconds: number;
}

/**
 * Parses the text that `go test -bench` prints, such as `BenchmarkScheduler1kNodes10kTasks-2 1
 * 3501234567 ns/op`. Other lines are skipped.
 */
export function parseGoBenchmarks(text: string): readonly GoBenchmark[] {
  return text.split('\n').flatMap((line) => {
    const [, name = '', runs, nanoseconds] =
      /^(Benchmark[^\s-]+)(?:-\d+)?\s+(\d+)\s+([\d.]+) ns\/op/.exec(line) ?? [];
    if (runs === undefined || nanoseconds === undefined) return [];
    return [{ name, runs: Number(runs), seconds: Number(nanoseconds) / 1e9 }];
  });
}

/**
 * Returns the CPU time of the children of a shell, seconds, from the last line of its `times`
 * command; undefined when there is none.
 * @see POSIX, Shell Command Language, "times"
 */
export function parseCpuSeconds(text: string): number | undefined {
  const lines = text.trimEnd().split('\n');
  const [, userMinutes, user, systemMinutes, system] =
    /^(\d+)m([\d.]+)s (\d+)m([\d.]+)s$/.exec(lines.at(-1) ?? '') ?? [];
  if (system === undefined) return undefined;
  return (Number(userMinutes) + Number(systemMinutes)) * 60 + Number(user) + Number(system);
}
