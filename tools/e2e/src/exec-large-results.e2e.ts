import { QUICK, RealCluster } from './support/cluster.js';

const MIB = 1024 * 1024;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['agent-1']);
  await cluster.client.createWorkload({
    name: 'web',
    spec: { ...QUICK, command: ['sleep', '1000'] },
  });
  await cluster.waitUntilSettled('web');
});
afterAll(() => cluster.stop());

/** Returns JavaScript code that writes `bytes` bytes of one value to a stream. */
const write = (stream: 'stdout' | 'stderr', bytes: number, value = 97): string =>
  `process.${stream}.write(Buffer.alloc(${bytes}, ${value}));`;

/** Runs JavaScript code in the replica through ExecCommand. */
function exec(program: string) {
  return cluster.client.execCommand({ name: 'web', command: ['node', '-e', program] });
}

describe('result of ExecCommand', () => {
  it.each([
    { name: 'slightly more than 640 000 bytes', bytes: 640_001 },
    { name: 'exactly 1 MiB', bytes: MIB },
  ])('is complete when it has $name', async ({ bytes }) => {
    const result = await exec(write('stdout', bytes));
    expect({
      length: result.stdout.length,
      truncated: result.truncated,
      exitCode: result.exitCode,
    }).toEqual({
      length: bytes,
      truncated: false,
      exitCode: 0,
    });
    expect(/^a+$/.test(result.stdout)).toBe(true);
  });

  it('is cut at 1 MiB per stream and marked as truncated', async () => {
    const { stdout, stderr, truncated, exitCode } = await exec(
      `${write('stdout', 3 * MIB)} ${write('stderr', 2 * MIB, 98)} process.exitCode = 7;`,
    );
    expect([stdout.length, stderr.length, truncated, exitCode]).toEqual([MIB, MIB, true, 7]);
    expect(/^b+$/.test(stderr)).toBe(true);
  });

  it('has the exact bytes when both streams are 1 MiB of binary data', async () => {
    const { stdoutRaw, stderrRaw, stdout } = await exec(
      `${write('stdout', MIB, 255)} ${write('stderr', MIB, 254)}`,
    );
    expect(stdout).toBe('\ufffd'.repeat(MIB));
    expect(Buffer.alloc(MIB, 255).equals(stdoutRaw)).toBe(true);
    expect(Buffer.alloc(MIB, 254).equals(stderrRaw)).toBe(true);
  });
});
