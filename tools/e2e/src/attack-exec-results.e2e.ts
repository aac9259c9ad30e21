import { QUICK, RealCluster } from './cluster.js';

const MIB = 1024 * 1024;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['agent-1']);
  await cluster.client.createWorkload({
    name: 'web',
    spec: { ...QUICK, command: ['sleep', '1000'] },
  });
  await cluster.settled('web');
});
afterAll(() => cluster.stop());

/** A command that writes so many bytes of one value to a stream. */
const write = (stream: 'stdout' | 'stderr', bytes: number, value = 97): string =>
  `process.${stream}.write(Buffer.alloc(${bytes}, ${value}));`;

/** What ExecCommand answers to a Node program. */
function exec(program: string) {
  return cluster.client.execCommand({ name: 'web', command: ['node', '-e', program] });
}

describe('results of ExecCommand that are large', () => {
  it.each([
    { name: 'just over what one message may hold as text', bytes: 640_001 },
    { name: 'exactly 1 MiB', bytes: MIB },
  ])('arrive whole when they are $name', async ({ bytes }) => {
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

  it('end at 1 MiB of each stream and say that there was more', async () => {
    const { stdout, stderr, truncated, exitCode } = await exec(
      `${write('stdout', 3 * MIB)} ${write('stderr', 2 * MIB, 98)} process.exitCode = 7;`,
    );
    expect([stdout.length, stderr.length, truncated, exitCode]).toEqual([MIB, MIB, true, 7]);
    expect(/^b+$/.test(stderr)).toBe(true);
  });

  it('hold the exact bytes when both streams are 1 MiB and no text', async () => {
    const { stdoutRaw, stderrRaw, stdout } = await exec(
      `${write('stdout', MIB, 255)} ${write('stderr', MIB, 254)}`,
    );
    expect(stdout).toBe('\ufffd'.repeat(MIB));
    expect(Buffer.alloc(MIB, 255).equals(stdoutRaw)).toBe(true);
    expect(Buffer.alloc(MIB, 254).equals(stderrRaw)).toBe(true);
  });
});
