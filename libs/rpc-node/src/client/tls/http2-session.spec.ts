import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

describe('destroySoon', () => {
  it('ends a session with open streams when the GOAWAY of the server has refused another', async () => {
    // A process of its own: the fault in Node.js keeps its thread busy for ever.
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
      stdout: 'Stream closed with error code NGHTTP2_REFUSED_STREAM\n',
    });
  });
});
