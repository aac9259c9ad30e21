import {
  WatchWorkloadsResponse_Kind as Kind,
  type WatchEventsResponse,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import { startCluster, createWeb } from '../test-cluster/web-workload.js';

/** Collects the items of a stream until the test stops it. */
function collect<Item>(open: (signal: AbortSignal) => AsyncIterable<Item>): {
  readonly items: Item[];
  stop(): void;
} {
  const items: Item[] = [];
  const call = new AbortController();
  const read = async (): Promise<void> => {
    for await (const item of open(call.signal)) items.push(item);
  };
  void read().catch(() => undefined);
  return { items, stop: () => call.abort() };
}

it('resumed watches of workloads send the newest state once, and resumed watches of events send every event', async () => {
  const cluster = await startCluster(1);
  const { client } = cluster;
  await createWeb(cluster, { replicas: 0 });
  const { revision } = await cluster.complete(() => client.listWorkloads({}));
  for (let replicas = 1; replicas <= 5; replicas += 1)
    await cluster.complete(() => client.scaleWorkload({ name: 'web', replicas }));
  await cluster.advance(1_000);

  const states = collect<WatchWorkloadsResponse>((signal) =>
    client.watchWorkloads({ afterRevision: revision }, { signal }),
  );
  const events = collect<WatchEventsResponse>((signal) =>
    client.watchEvents({ workload: 'web', afterRevision: revision }, { signal }),
  );
  await cluster.advance(100);
  expect(
    states.items.map(({ kind, workload }) => [
      kind,
      workload?.generation,
      workload?.spec?.replicas,
    ]),
  ).toEqual([
    [Kind.PUT, 6n, 5],
    [Kind.BOOKMARK, undefined, undefined],
  ]);
  const scaled = events.items.flatMap(({ event }) =>
    event?.reason === 'WorkloadScaled' ? [event.message] : [],
  );
  expect(scaled).toEqual(
    [1, 2, 3, 4, 5].map(
      (replicas) =>
        `workload default/web now has ${replicas} desired replicas (generation ${replicas + 1})`,
    ),
  );
  states.stop();
  events.stop();
  await cluster.complete(() => cluster.stopCoordinator());
});
