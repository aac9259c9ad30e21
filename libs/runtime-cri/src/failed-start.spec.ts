import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { silentLog } from '@cloudless/base';
import type { ContainerEvent, ContainerRuntime } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { openCriRuntime } from './index.js';
import { FakeCriServer } from './testing/fake-cri-server.js';
import { aRequest } from './testing/requests.js';

const REFUSAL = 'failed to create shim task: exec: "/app/run": permission denied: unknown';

let server: FakeCriServer;
let runtime: ContainerRuntime;

beforeEach(async () => {
  server = new FakeCriServer();
});

/** Opens the runtime under test. Call it after the answers of the server are set. */
async function open(): Promise<void> {
  await server.listen();
  const { socketPath, logDirectory, home: imageDirectory } = server;
  const owner = { cluster: 'c1', node: 'n1' };
  runtime = await openCriRuntime({
    socketPath,
    logDirectory,
    imageDirectory,
    owner,
    clock: systemClock,
    log: silentLog,
  });
}

afterEach(async () => {
  await runtime.close();
  await server.dispose();
});

/**
 * Makes the runtime refuse to start a container like containerd: the container is listed as exited
 * with code 128 before the call fails, and a concurrent list sees it.
 * @returns The container as listed in between.
 */
function refuseStart(ended: { readonly reason: string; readonly startedAt: bigint }): {
  listed: Promise<unknown>;
} {
  const seen = { listed: Promise.resolve<unknown>(undefined) };
  server.overrides.startContainer = async () => {
    server.exitContainer(server.onlyContainer, 128, ended.reason);
    server.onlyContainer.startedAt = ended.startedAt;
    seen.listed = runtime.list();
    await seen.listed;
    throw new ConnectError(REFUSAL, Code.Unknown);
  };
  return seen;
}

describe('a container that the runtime could not start', () => {
  it.each([
    { name: 'containerd', reason: 'StartError', startedAt: 0n },
    { name: 'a runtime that sets the start time', reason: 'StartError', startedAt: 5n },
    {
      name: 'CRI-O, whose zero time is negative',
      reason: 'Error',
      startedAt: -6_795_364_578_871_345_152n,
    },
  ])('is neither listed nor reported as started or exited with $name', async (ended) => {
    const seen = refuseStart(ended);
    await open();
    const leave = new AbortController();
    const told: ContainerEvent[] = [];
    const events = runtime.events(leave.signal);
    const reading = (async () => {
      for await (const event of events) told.push(event);
    })();
    await expect(runtime.start(aRequest())).rejects.toMatchObject({
      kind: 'invalid',
      message: REFUSAL,
    });
    expect(await seen.listed).toEqual([]);
    expect(await runtime.list()).toEqual([]);
    leave.abort();
    await reading;
    expect(told).toEqual([]);
  });

  it('does not hide a container whose end the runtime did not observe', async () => {
    await open();
    await runtime.start(aRequest());
    server.exitContainer(server.onlyContainer, 255, 'Unknown');
    server.onlyContainer.startedAt = 0n;
    expect(await runtime.list()).toMatchObject([{ phase: 'exited', exitCode: -1 }]);
  });
});
