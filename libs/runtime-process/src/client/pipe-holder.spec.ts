import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { layout } from '../supervisor/container/container-paths.js';
import { PipeHolder } from './pipe-holder.js';

const describeLinux = process.platform === 'linux' ? describe : describe.skip;
const [first, second] = ['a', 'b'].map((digit) => digit.repeat(64)) as [ContainerId, ContainerId];
const status = (containerId: ContainerId, phase: ContainerStatus['phase']): ContainerStatus =>
  ({ containerId, phase }) as ContainerStatus;
let directory: string;
let holder: PipeHolder;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-pipes-'));
  holder = new PipeHolder(directory);
  for (const id of [first, second]) {
    const folder = layout.container(directory, id);
    mkdirSync(folder, { recursive: true });
    execFileSync('mkfifo', [layout.pipe(folder, 'stdout'), layout.pipe(folder, 'stderr')]);
  }
});
afterEach(() => {
  holder.close();
  rmSync(directory, { recursive: true });
});

/** Lists the ids of the containers whose pipes this process holds open, once for each pipe. */
function listHeld(): readonly string[] {
  return readdirSync('/proc/self/fd')
    .flatMap((fd) => {
      try {
        return [readlinkSync(`/proc/self/fd/${fd}`)];
      } catch {
        return []; // the descriptor that listed the directory
      }
    })
    .filter((target) => target.startsWith(directory))
    .map((target) => path.basename(path.dirname(target)))
    .sort();
}

describeLinux('PipeHolder', () => {
  it('opens both pipes of each running container once', () => {
    holder.applyAll([status(first, 'running'), status(second, 'exited')]);
    holder.applyStatus(status(first, 'running'));
    expect(listHeld()).toEqual([first, first]);
  });

  it('closes the pipes of containers that have exited or are not listed any more', () => {
    holder.applyAll([status(first, 'running'), status(second, 'running')]);
    holder.applyStatus(status(first, 'exited'));
    expect(listHeld()).toEqual([second, second]);
    holder.applyAll([]);
    expect(listHeld()).toEqual([]);
  });

  it('ignores a container whose pipes are gone', () => {
    holder.applyStatus(status('c'.repeat(64) as ContainerId, 'running'));
    expect(listHeld()).toEqual([]);
  });
});
