import type { ExecRequest } from '@cloudless/api';
import type { Terminal } from '../../io/io.js';
import { runCli } from '../../testing/run-cli.js';

/**
 * Creates a coordinator whose command copies standard input to standard output until the input ends
 * or the terminal is resized, writes `bye` to standard error and exits with 5.
 * @param seen - Receives the requests.
 */
function createCopyingCoordinator(seen: ExecRequest['request'][]) {
  return {
    exec: async function* (requests: AsyncIterable<ExecRequest>) {
      yield { response: { case: 'started' as const, value: { nodeId: 'n1' } } };
      for await (const { request } of requests) {
        seen.push(request);
        if (request.case === 'stdin')
          yield { response: { case: 'stdout' as const, value: request.value } };
        if (request.case === 'stdinEnd' || request.case === 'resize') break;
      }
      yield { response: { case: 'stderr' as const, value: new TextEncoder().encode('bye') } };
      yield {};
      yield { response: { case: 'exit' as const, value: { exitCode: 5 } } };
    },
  };
}

describe('cloudlessctl exec with -i or -t', () => {
  it('streams input and output, and exits with the exit code of the command', async () => {
    const seen: ExecRequest['request'][] = [];
    const result = await runCli(['exec', '-i', 'shop/web', '--timeout', '5s', '--', 'cat', '-n'], {
      coordinator: createCopyingCoordinator(seen),
      stdin: { kind: 'other', text: 'hello' },
    });
    expect(result).toMatchObject({ exitCode: 5, stdout: 'hello', stderr: 'bye' });
    expect(seen[0]).toMatchObject({
      case: 'start',
      value: { namespace: 'shop', name: 'web', command: ['cat', '-n'], timeout: { seconds: 5n } },
    });
    expect(seen.map(({ case: kind }) => kind)).toEqual(['start', 'stdin', 'stdinEnd']);
  });

  it('exits with 1 when standard input cannot be read', async () => {
    const stdin = {
      kind: 'other',
      text: 'hello',
      failure: new Error('EIO: the terminal has hung up'),
    } as const;
    const result = await runCli(['exec', '-i', 'web', '--', 'cat'], {
      coordinator: createCopyingCoordinator([]),
      stdin,
    });
    expect(result.exitCode).toBe(1);
    expect(result.stderr).toContain('cloudlessctl: ');
  });

  it('sends the terminal size with -t, and switches to raw mode and back with -it', async () => {
    const seen: ExecRequest['request'][] = [];
    const modes: string[] = [];
    let resized: (() => void) | undefined;
    const terminal: Terminal = {
      size: { columns: 100, rows: 40 },
      onResize: (listener) => {
        resized = listener;
        return () => (resized = undefined);
      },
      makeRaw: () => {
        modes.push('raw');
        return () => void modes.push('as before');
      },
    };
    const running = runCli(['exec', '-t', 'web', '--', 'sh'], {
      coordinator: createCopyingCoordinator(seen),
      terminal,
      env: { TERM: 'vt100' },
    });
    while (resized === undefined) await new Promise((resolve) => setImmediate(resolve));
    resized();
    expect(await running).toMatchObject({ exitCode: 5 });
    expect(seen).toMatchObject([
      { case: 'start', value: { tty: { columns: 100, rows: 40 }, env: { TERM: 'vt100' } } },
      { case: 'resize', value: { columns: 100, rows: 40 } },
    ]);
    expect({ modes, resized }).toEqual({ modes: [], resized: undefined });
    await runCli(['exec', '-it', 'web', '--', 'sh'], {
      coordinator: createCopyingCoordinator(seen),
      terminal,
    });
    expect(modes).toEqual(['raw', 'as before']);
  });

  it.each([
    {
      argv: ['exec', '-it', 'web', '--', 'sh'],
      says: '-t requires a terminal as standard input and output',
    },
    { argv: ['exec', '-i', '-o', 'json', 'web', '--', 'sh'], says: 'cannot be used with -i or -t' },
  ])('rejects $argv with: $says', async ({ argv, says }) => {
    expect(await runCli(argv, { coordinator: createCopyingCoordinator([]) })).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining(says),
    });
  });
});
