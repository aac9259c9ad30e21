import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import type { ContainerEvent, ContainerRuntime } from '@cloudless/runtime';
import { FakeCriServer } from './testing/fake-cri-server.js';
import { openRuntime } from './testing/open-runtime.js';
import { aRequest } from './testing/requests.js';

const REFUSAL = 'failed to create shim task: exec: "/app/run": permission denied: unknown';

let server: FakeCriServer;
let runtime: ContainerRuntime;

beforeEach(async () => {
  server = new FakeCriServer();
});

/** Opens the runtime under test. Call it after the overrides of the server are set. */
async function open(): Promise<void> {
  await server.listen();
  runtime = await openRuntime(server);
}

afterEach(async () => {
  await runtime.close();
  await server.dispose();
});

/**
 * Makes the runtime refuse to start a container as containerd does: the runtime lists the container
 * as exited with code 128 before the call fails. A concurrent list of the agent happens in between.
 * @returns The result of that list.
 */
function refuseStart(exit: { readonly reason: string; readonly startedAt: bigint }): {
  listed: Promise<unknown>;
} {
  const result = { listed: Promise.resolve<unknown>(undefined) };
  server.overrides.startContainer = async () => {
    server.exitContainer(server.onlyContainer, 128, exit.reason);
    server.onlyContainer.startedAt = exit.startedAt;
    result.listed = runtime.list();
    await result.listed;
    throw new ConnectError(REFUSAL, Code.Unknown);
  };
  return result;
}

describe('a container that the runtime could not start', () => {
  it.each([
    { name: 'has no start time, as with containerd', reason: 'StartError', startedAt: 0n },
    { name: 'has a start time', reason: 'StartError', startedAt: 5n },
    {
      name: 'has a negative start time, as with CRI-O',
      reason: 'Error',
      startedAt: -6_795_364_578_871_345_152n,
    },
  ])('is neither listed nor reported as an event when it $name', async (exit) => {
    const result = refuseStart(exit);
    await open();
    const leave = new AbortController();
    const received: ContainerEvent[] = [];
    const events = runtime.events(leave.signal);
    const reading = (async () => {
      for await (const event of events) received.push(event);
    })();
    await expect(runtime.start(aRequest())).rejects.toMatchObject({
      kind: 'invalid',
      message: REFUSAL,
    });
    expect(await result.listed).toEqual([]);
    expect(await runtime.list()).toEqual([]);
    leave.abort();
    await reading;
    expect(received).toEqual([]);
  });
});

describe('a container whose exit the runtime did not observe', () => {
  it('is listed as exited even when it has no start time', async () => {
    await open();
    await runtime.start(aRequest());
    server.exitContainer(server.onlyContainer, 255, 'Unknown');
    server.onlyContainer.startedAt = 0n;
    expect(await runtime.list()).toMatchObject([{ phase: 'exited', exitCode: -1 }]);
  });
});
