import { create } from '@bufbuild/protobuf';
import { SimulateClusterRequestSchema, SimulateClusterResponseSchema } from '@cloudless/api';
import { createSnapshotView } from '@cloudless/cluster-state';
import { ManualClock } from '@cloudless/base/testing';
import { WhatIfHandlers } from './what-if-handlers.js';

const view = createSnapshotView({
  ...{ revision: 5n, nodes: [], workloads: [], versions: [], controls: [], replicas: [] },
});
const signal = new AbortController().signal;
const request = (revision = 0n) => create(SimulateClusterRequestSchema, { revision });

/** Handlers over a state whose simulations end when the test says so. */
function createHandlers() {
  const ends: (() => void)[] = [];
  const opened: string[] = [];
  let open = 0;
  const openState = (name: string) => {
    opened.push(name);
    open += 1;
    return {
      view,
      close: () => (open -= 1),
      simulate: () =>
        new Promise<ReturnType<typeof createResponse>>((resolve) =>
          ends.push(() => resolve(createResponse())),
        ),
    };
  };
  const handlers = new WhatIfHandlers({
    whatIf: {
      openCurrent: () => openState('current'),
      proposeMoves: () => Promise.reject(new Error('unused')),
      encodeSnapshot: function* () {},
      openRevision: (revision) => Promise.resolve(openState(String(revision))),
    },
    explainImpossibleLimits: () => undefined,
    clock: new ManualClock(),
  });
  return { handlers, ends, opened, countOpen: () => open };
}
const createResponse = () => create(SimulateClusterResponseSchema, { revision: 5n });

describe('SimulateCluster', () => {
  it('simulates the current state, or the state of a revision, and closes the state', async () => {
    const { handlers, ends, opened, countOpen } = createHandlers();
    const results = [
      handlers.simulateCluster(request(), { signal }),
      handlers.simulateCluster(request(3n), { signal }),
    ];
    await Promise.resolve();
    await Promise.resolve();
    for (const end of ends) end();
    await Promise.all(results);
    expect(opened).toEqual(['current', '3']);
    expect(countOpen()).toBe(0);
  });

  it('refuses a third simulation at the same time, and accepts one when another has ended', async () => {
    const { handlers, ends } = createHandlers();
    const first = handlers.simulateCluster(request(), { signal });
    const second = handlers.simulateCluster(request(), { signal });
    await expect(handlers.simulateCluster(request(), { signal })).rejects.toMatchObject({
      kind: 'exhausted',
      message: '2 simulations are running already; try again when one has ended',
    });
    ends[0]?.();
    await first;
    const third = handlers.simulateCluster(request(), { signal });
    for (const end of ends) end();
    await Promise.all([second, third]);
  });

  it('closes the state when a change is invalid', async () => {
    const { handlers, countOpen } = createHandlers();
    const invalid = create(SimulateClusterRequestSchema, {
      changes: [{ change: { case: 'loseNode', value: 'n1' } }],
    });
    await expect(handlers.simulateCluster(invalid, { signal })).rejects.toMatchObject({
      kind: 'notFound',
    });
    expect(countOpen()).toBe(0);
  });
});
