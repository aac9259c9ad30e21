import { parseCpuSeconds, parseGoBenchmarks } from './go-benchmark.js';

describe('parseGoBenchmarks', () => {
  it('reads the name, the runs and the seconds of each benchmark, and skips other lines', () => {
    const text = [
      'goos: linux',
      'BenchmarkScheduler1kNodes1kTasks-2   \t       3\t 350123456 ns/op',
      'BenchmarkScheduler1kNodes10kTasks \t 1\t3501234567 ns/op\t 12 B/op',
      'PASS',
    ].join('\n');
    expect(parseGoBenchmarks(text)).toEqual([
      { name: 'BenchmarkScheduler1kNodes1kTasks', runs: 3, seconds: 0.350123456 },
      { name: 'BenchmarkScheduler1kNodes10kTasks', runs: 1, seconds: 3.501234567 },
    ]);
  });
});

describe('parseCpuSeconds', () => {
  it('adds user and system time of the children, the last line of times', () => {
    expect(parseCpuSeconds('PASS\n0m0.010000s 0m0.020000s\n1m3.500000s 0m0.250000s\n')).toBeCloseTo(
      63.75,
    );
  });

  it('is undefined without that line', () => {
    expect(parseCpuSeconds('PASS\n')).toBeUndefined();
  });
});
