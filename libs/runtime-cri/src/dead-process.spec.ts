import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerRuntime } from '@cloudless/runtime';
import { ContainerState } from './gen/runtime/v1/api_pb.js';
import { FakeCriServer } from './testing/fake-cri-server.js';
import { openRuntime } from './testing/open-runtime.js';
import { aRequest } from './testing/requests.js';

let server: FakeCriServer;
let runtime: ContainerRuntime;
/** Process id that the next container reports. */
let pid = 0;
const processes: ChildProcess[] = [];

beforeEach(async () => {
  server = new FakeCriServer();
  server.overrides.startContainer = () => {
    Object.assign(server.onlyContainer, {
      state: ContainerState.CONTAINER_RUNNING,
      startedAt: 1n,
      pid,
    });
    return {};
  };
  await server.listen();
  runtime = await openRuntime(server);
});

afterEach(async () => {
  for (const child of processes.splice(0)) child.kill('SIGKILL');
  await runtime.close();
  await server.dispose();
});

/** Starts a process, which becomes the main process of the next container. */
function spawnMain(command: string, ...args: string[]): ChildProcess {
  const child = spawn(command, args);
  processes.push(child);
  pid = child.pid ?? 0;
  return child;
}

describe('CriRuntime.health', () => {
  it('names a container whose main process has ended while the runtime still lists it as running', async () => {
    const main = spawnMain('sleep', '3600');
    await runtime.start(aRequest());
    expect(runtime.health?.().withoutProcess).toEqual([]);
    main.kill('SIGKILL');
    await once(main, 'exit');
    expect(runtime.health?.().withoutProcess).toEqual([aRequest().containerId]);
  });

  it('names no container whose main process was never visible to the agent', async () => {
    await once(spawnMain('true'), 'exit');
    await runtime.start(aRequest());
    expect(runtime.health?.().withoutProcess).toEqual([]);
  });
});
