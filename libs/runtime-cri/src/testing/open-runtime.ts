import { silentLog } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { openCriRuntime, type CriRuntime, type CriRuntimeOptions } from '../index.js';
import type { FakeCriServer } from './fake-cri-server.js';

/** Owner of the containers of {@link openRuntime}. */
export const OWNER = { cluster: 'c1', node: 'n1' };

/** Opens a runtime on a fake server. Override the options that the test is about. */
export function openRuntime(
  { socketPath, logDirectory, directory: imageDirectory }: FakeCriServer,
  overrides: Partial<CriRuntimeOptions> = {},
): Promise<CriRuntime> {
  return openCriRuntime({
    socketPath,
    logDirectory,
    imageDirectory,
    owner: OWNER,
    clock: systemClock,
    log: silentLog,
    ...overrides,
  });
}
