import type { ExecCommandRequest } from '@cloudless/api';
import { runCli } from '../../testing/run-cli.js';

describe('cloudlessctl exec', () => {
  it('sends standard input and all words after --, and returns both output streams and the exit code', async () => {
    const requests: ExecCommandRequest[] = [];
    const coordinator = {
      execCommand: (request: ExecCommandRequest) => {
        requests.push(request);
        return { stdout: 'out\n', stderr: 'err\n', exitCode: 42 };
      },
    };
    const result = await runCli(
      ['exec', 'web', '--timeout', '5s', '--', 'sh', '-c', 'ls', '-n', '--', 'x'],
      {
        coordinator,
        stdin: { kind: 'pipe', text: 'in' },
      },
    );
    expect(result).toMatchObject({ exitCode: 42, stdout: 'out\n', stderr: 'err\n' });
    expect(requests).toMatchObject([
      {
        namespace: 'default',
        name: 'web',
        command: ['sh', '-c', 'ls', '-n', '--', 'x'],
        timeout: { seconds: 5n },
        stdin: new TextEncoder().encode('in'),
      },
    ]);
  });

  const refusal = 'container 0123456789ab: command: no executable nosuch in PATH /bin\n';
  it.each([
    { name: 'the refusal of a node', exitCode: 127, stderr: refusal, prefix: 'cloudlessctl: ' },
    { name: 'a refused executable', exitCode: 126, stderr: refusal, prefix: 'cloudlessctl: ' },
    { name: 'a command that prints such a line', exitCode: 1, stderr: refusal, prefix: '' },
    {
      name: 'a shell that does not find a program',
      ...{ exitCode: 127, stderr: 'sh: nosuch: not found\n', prefix: '' },
    },
  ])('prints $name with the prefix "$prefix"', async ({ exitCode, stderr, prefix }) => {
    const containerId = '0123456789abcdef'.repeat(4);
    const coordinator = { execCommand: () => ({ exitCode, stderr, containerId }) };
    expect(await runCli(['exec', 'web', '--', 'nosuch'], { coordinator })).toMatchObject({
      ...{ exitCode, stdout: '', stderr: `${prefix}${stderr}` },
    });
  });

  it.each([
    { target: '0123456789ab', fields: { containerId: '0123456789ab' } },
    { target: '00000000000000aa-7', fields: { replicaId: '00000000000000aa-7' } },
    { target: 'default/0123456789ab', fields: { namespace: 'default', name: '0123456789ab' } },
    { target: 'deadbeefcafe', fields: { namespace: 'default', name: 'deadbeefcafe' } },
  ])('sends the target $target in the fields $fields', async ({ target, fields }) => {
    let seen: ExecCommandRequest | undefined;
    const coordinator = {
      execCommand: (request: ExecCommandRequest) => {
        seen = request;
        return { exitCode: 0 };
      },
    };
    expect((await runCli(['exec', target, '--', 'true'], { coordinator })).exitCode).toBe(0);
    expect(seen).toMatchObject(fields);
  });

  it('reads only piped standard input, and rejects more than 1 MiB', async () => {
    const sizes: number[] = [];
    const coordinator = {
      execCommand: ({ stdin }: ExecCommandRequest) => {
        sizes.push(stdin.length);
        return {};
      },
    };
    await runCli(['exec', 'web', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'other', text: 'x' },
    });
    await runCli(['exec', 'web', '--', 'cat'], { coordinator, stdin: { kind: 'pipe', text: 'x' } });
    await runCli(['exec', 'web', '--no-stdin', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'pipe', text: 'x' },
    });
    expect(sizes).toEqual([0, 1, 0]);
    const long = await runCli(['exec', 'web', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'pipe', text: 'x'.repeat(1024 * 1024 + 1) },
    });
    expect(long).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: standard input is longer than 1 MiB; use -i to stream it\n',
    });
  });
});
