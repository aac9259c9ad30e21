import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { NOW_MS, aWorkload, runCli } from '../testing/run-cli.js';

const coordinator = {
  getWorkload: () => aWorkload({ createdAt: timestampFromMs(NOW_MS - 3_600_000) }),
};

describe('the zone of times', () => {
  it('is local time with its offset in a description, UTC with --utc, and always UTC in JSON', async () => {
    const options = { coordinator, utcOffset: 330 };
    expect((await runCli(['describe', 'web'], options)).stdout).toContain(
      '2026-01-01T04:30:00+05:30 (60m ago)',
    );
    expect((await runCli(['describe', 'web', '--utc'], options)).stdout).toContain(
      '2025-12-31T23:00:00Z (60m ago)',
    );
    expect((await runCli(['--utc', 'describe', 'web'], options)).stdout).toContain(
      '2025-12-31T23:00:00Z (60m ago)',
    );
    expect((await runCli(['get', 'workload', 'web', '-o', 'json'], options)).stdout).toContain(
      '"createdAt": "2025-12-31T23:00:00Z"',
    );
  });
});
