import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '@cloudless/base';
import { markedProcesses } from '../system/marked-processes.js';
import { readBootId, startTokenOf } from '../system/process-identity.js';
import { aScript } from '../testing/container-calls.js';
import { until } from '../testing/real-machine.js';
import { realClock } from '../testing/system.js';
import { layout } from './container-paths.js';
import { FifoPool } from './fifo-pool.js';
import { startContainer, type StartDeps } from './start-container.js';

describe('a start whose record cannot be written once its process runs', () => {
  it('fails and leaves neither process nor folder', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-start-'));
    try {
      let names = 0;
      const fifos = new FifoPool(layout.fifos(directory), () => `pipe-${(names += 1)}`);
      const request = aScript('exec sleep 3600');
      const folder = layout.container(directory, request.containerId);
      const deps: StartDeps = {
        directory,
        clock: realClock,
        log: silentLog,
        // The last step before the process is made: from here on no record can be written, as on a full disk.
        fifos: {
          take: async (file) => {
            await fifos.take(file);
            if (file === layout.pipe(folder, 'stderr')) mkdirSync(path.join(folder, 'state.json.new'));
          },
        },
        bootId: readBootId(),
        settings: {
          portRange: { from: 1, to: 2 },
          address: '127.0.0.1',
          path: '/usr/bin:/bin',
          logFiles: 2,
          logFileBytes: 1024,
        },
        onExit: () => undefined,
        onGuardLost: () => undefined,
      };
      await expect(startContainer(request, [], deps)).rejects.toThrow('EISDIR');
      expect(readdirSync(layout.containers(directory))).toEqual([]);
      const left = markedProcesses().filter(({ containerId }) => containerId === request.containerId);
      await until(() => left.every(({ pid }) => startTokenOf(pid) === undefined));
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
});
