import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

describe('destroyInNextTurn', () => {
  it('ends a connection with running calls when the GOAWAY of the server refuses other calls', async () => {
    // The program runs in a process of its own: the fault in Node.js would keep the thread of the
    // test busy, so that no timeout of Jest could end the test.
    const program = fileURLToPath(new URL('../../testing/goaway-child.ts', import.meta.url));
    const node = ['--conditions=@cloudless/source', '--import', 'tsx', program];
    const options = { timeout: 30_000, killSignal: 'SIGKILL' } as const;
    const result = await new Promise((resolve) => {
      execFile(process.execPath, node, options, (reason, stdout) =>
        resolve({ signal: reason?.signal, stdout }),
      );
    });
    expect(result).toEqual({
      signal: undefined,
      stdout: 'internal\nunavailable\nunavailable\n',
    });
  });
});
