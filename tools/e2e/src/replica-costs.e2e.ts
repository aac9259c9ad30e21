import { runToEnd } from './support/processes.js';

/**
 * Largest counts for each of 2,000 replicas from creation to readiness. Counts do not depend on the
 * speed of the machine, except that a slower one shares commits between more replicas.
 */
const LIMITS = {
  commits: 0.5,
  orders: 1.02,
  reports: 1.02,
  bytesToAgents: 200,
  bytesFromAgents: 140,
};

it('creates 2,000 replicas with few commits, one order and one report for each', async () => {
  const limits = Object.entries(LIMITS).map(([figure, max]) => `${figure}=${max}`);
  const { code, stderr, stdout } = await runToEnd(process.execPath, [
    ...['--import', 'tsx', '--conditions=@cloudless/source'],
    ...['tools/bench/src/million/million.ts', '--phases', 'create,restart'],
    ...['--replicas', '2000', '--agents', '100', '--per-workload', '500'],
    ...['--limits', limits.join(',')],
  ]);
  expect(stderr).not.toContain('VIOLATION');
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ benchmark: 'million', violations: [] });
});
