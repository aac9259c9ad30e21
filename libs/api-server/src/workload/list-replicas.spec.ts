import { create, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  ListReplicasRequestSchema,
  ReplicaStatus_Phase as Phase,
  ReplicaStatusSchema,
  type ListReplicasResponse,
} from '@cloudless/api';
import { ControlRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import type { ReplicaRecord } from '@cloudless/api/store';
import {
  createReplicaRecord,
  createSnapshotView,
  toNameKeyId,
  type ClusterView,
} from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import { listReplicas } from './list-replicas.js';

/** A workload of a test. Names sort differently with and without a separator. */
interface Row {
  readonly namespace: string;
  readonly name: string;
  /** Grows when the workload is deleted and created again. */
  readonly life: number;
  readonly app: string;
  readonly replicas: readonly ReplicaRecord[];
}

const toUid = ({ namespace, name, life }: Row): string => `${namespace}.${name}.${life}`;

function createView(rows: readonly Row[]): ClusterView {
  return createSnapshotView({
    ...{ revision: 7n, nodes: [], versions: [] },
    workloads: rows.map((row) =>
      create(WorkloadRecordSchema, {
        ...{ uid: toUid(row), namespace: row.namespace, name: row.name },
        spec: { labels: { app: row.app } },
      }),
    ),
    controls: rows.map((row) => create(ControlRecordSchema, { uid: toUid(row) })),
    replicas: rows.flatMap(({ replicas }) => replicas),
  });
}

function list(
  view: ClusterView,
  request: MessageInitShape<typeof ListReplicasRequestSchema>,
  isVisible: (namespace: string) => boolean = () => true,
): ListReplicasResponse {
  const presenter = {
    presentReplica: ({ id }: ReplicaRecord) => create(ReplicaStatusSchema, { id }),
  };
  return listReplicas(
    { state: { view: () => view }, presenter } as unknown as ReadDeps,
    create(ListReplicasRequestSchema, request),
    { isVisible, isBinary: false },
  );
}

const toIds = ({ workloads }: ListReplicasResponse): readonly string[] =>
  workloads.flatMap(({ replicas }) => replicas.map(({ id }) => id));

const arbReplica = fc.record({
  nodeId: fc.constantFrom('', 'node-1'),
  phase: fc.constantFrom(Phase.PENDING, Phase.RUNNING, Phase.FAILED),
  desiredRunning: fc.boolean(),
});
const arbFilter = fc.record({
  namespace: fc.constantFrom('', 'a', 'a-b'),
  name: fc.constantFrom('', 'web'),
  labelSelector: fc.constantFrom('', 'app=shop'),
  nodeId: fc.constantFrom('', 'node-1'),
  phases: fc.subarray([Phase.RUNNING, Phase.STOPPING, Phase.FAILED]),
  pageSize: fc.integer({ min: 1, max: 4 }),
});
const arbChange = fc.oneof(
  fc.record({ kind: fc.constant('add' as const), at: fc.nat(11), replica: arbReplica }),
  fc.record({ kind: fc.constant('remove' as const), at: fc.nat(11), index: fc.nat(5) }),
  fc.record({ kind: fc.constant('create again' as const), at: fc.nat(11), replica: arbReplica }),
);
type Filter = typeof arbFilter extends fc.Arbitrary<infer Value> ? Value : never;
type Change = typeof arbChange extends fc.Arbitrary<infer Value> ? Value : never;

/** The workloads of a test with the sequence numbers of their next replicas. */
class World {
  readonly rows: Row[] = [];
  private readonly sequences = new Map<string, number>();

  add(row: Row, fields: Parameters<typeof createReplicaRecord>[0]): Row {
    const uid = toUid(row);
    const sequence = (this.sequences.get(uid) ?? 0) + 1;
    this.sequences.set(uid, sequence);
    const ids = { id: `${uid}-${sequence}`, uid, sequence: BigInt(sequence) };
    return { ...row, replicas: [...row.replicas, createReplicaRecord({ ...ids, ...fields })] };
  }

  apply(change: Change): void {
    const at = change.at % this.rows.length;
    const row = this.rows[at] as Row;
    if (change.kind === 'add') this.rows[at] = this.add(row, change.replica);
    else if (change.kind === 'remove')
      this.rows[at] = {
        ...row,
        replicas: row.replicas.filter((_, index) => index !== change.index % row.replicas.length),
      };
    else this.rows[at] = this.add({ ...row, life: row.life + 1, replicas: [] }, change.replica);
  }

  listIds(filter: Filter): readonly string[] {
    const key = ({ namespace, name }: Row): string => toNameKeyId(namespace, name);
    return [...this.rows]
      .sort((a, b) => (key(a) < key(b) ? -1 : 1))
      .filter(
        ({ namespace, name, app }) =>
          (filter.namespace === '' || namespace === filter.namespace) &&
          (filter.name === '' || name === filter.name) &&
          (filter.labelSelector === '' || app === 'shop'),
      )
      .flatMap(({ replicas }) => replicas)
      .filter(
        ({ nodeId, phase, desiredRunning }) =>
          (filter.nodeId === '' || nodeId === filter.nodeId) &&
          (filter.phases.length === 0 ||
            filter.phases.includes(
              phase <= Phase.STOPPING && !desiredRunning ? Phase.STOPPING : phase,
            )),
      )
      .map(({ id }) => id);
  }
}

const arbRow = fc.record({
  namespace: fc.constantFrom('a', 'a-b', 'b'),
  name: fc.constantFrom('db', 'web', 'web-2', 'x'),
  app: fc.constantFrom('shop', 'bank'),
  life: fc.constant(0),
  replicas: fc.constant([]),
});

describe('ListReplicas', () => {
  it('returns pages that together are the whole list, and neither skips nor repeats a replica that stays', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(arbRow, {
          selector: ({ namespace, name }) => toNameKeyId(namespace, name),
          minLength: 1,
          maxLength: 12,
        }),
        fc.array(fc.tuple(fc.nat(11), arbReplica), { maxLength: 30 }),
        fc.array(fc.option(arbChange, { nil: undefined }), { maxLength: 12 }),
        arbFilter,
        (rows, replicas, changes, filter) => {
          const world = new World();
          world.rows.push(...rows);
          for (const [at, replica] of replicas) world.apply({ kind: 'add', at, replica });
          const first = world.listIds(filter);
          const ever = new Set(first);
          const read: string[] = [];
          let hasChanged = false;
          let pageToken = '';
          do {
            const page = list(createView(world.rows), { ...filter, pageToken });
            const ids = toIds(page);
            expect(ids.length).toBeLessThanOrEqual(filter.pageSize);
            read.push(...ids);
            pageToken = page.nextPageToken;
            const change = changes.pop();
            if (change === undefined) continue;
            hasChanged = true;
            world.apply(change);
            for (const id of world.listIds(filter)) ever.add(id);
          } while (pageToken !== '');
          if (!hasChanged) expect(read).toEqual(first);
          expect(new Set(read).size).toBe(read.length);
          expect(read.filter((id) => !ever.has(id))).toEqual([]);
          const last = new Set(world.listIds(filter));
          expect(first.filter((id) => last.has(id) && !read.includes(id))).toEqual([]);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('shows namespace, name and uid of the workload of each replica, and the revision', () => {
    const world = new World();
    const row = { name: 'web', life: 0, app: 'shop', replicas: [] };
    for (const namespace of ['a', 'b']) {
      const one = world.add({ ...row, namespace }, {});
      world.rows.push(world.add(one, {}));
    }
    const page = list(createView(world.rows), { pageSize: 3 });
    expect(page).toMatchObject({
      workloads: [
        { namespace: 'a', name: 'web', uid: 'a.web.0', removedReplicaIds: [] },
        { namespace: 'b', name: 'web', uid: 'b.web.0', removedReplicaIds: [] },
      ],
      revision: 7n,
    });
    expect(toIds(page)).toEqual(['a.web.0-1', 'a.web.0-2', 'b.web.0-1']);
    const isVisible = (namespace: string): boolean => namespace === 'b';
    expect(toIds(list(createView(world.rows), {}, isVisible))).toEqual(['b.web.0-1', 'b.web.0-2']);
  });

  it.each([
    { request: { pageSize: -1 }, message: 'page_size: must be from 0 to 1000' },
    { request: { pageToken: 'x' }, message: 'page_token: is not a token of this server' },
    { request: { labelSelector: '=' }, message: 'label_selector' },
  ])('refuses the request $request', ({ request, message }) => {
    expect(() => list(createView([]), request)).toThrow(message);
  });

  it('reads the replicas of a page and one more, wherever the page begins', () => {
    const empty = { namespace: 'a', name: 'web', life: 0, app: 'shop' };
    const uid = toUid({ ...empty, replicas: [] });
    const replicas = Array.from({ length: 20_000 }, (_, index) =>
      createReplicaRecord({ id: `${uid}-${index + 1}`, uid, sequence: BigInt(index + 1) }),
    );
    const view = createView([{ ...empty, replicas }]);
    let reads = 0;
    function* count<Item>(items: Iterable<Item>): Generator<Item> {
      for (const item of items) {
        reads += 1;
        yield item;
      }
    }
    const counted = Object.create(view, {
      replicasInOrder: {
        value: (of: string, after?: number) => count(view.replicasInOrder(of, after)),
      },
      replicasOf: { value: (of: string) => count(view.replicasOf(of)) },
      replicas: { value: () => count(view.replicas()) },
    }) as ClusterView;
    let pageToken = '';
    for (let page = 0; page < 20; page += 1) {
      reads = 0;
      const response = list(counted, { name: 'web', pageSize: 1_000, pageToken });
      pageToken = response.nextPageToken;
      expect(toIds(response)[0]).toBe(`${uid}-${page * 1_000 + 1}`);
      expect(reads).toBeLessThanOrEqual(1_001);
    }
    expect(pageToken).toBe('');
  });

  it('ends a page early when few replicas match, and finds them on a later page', () => {
    const empty = { namespace: 'a', name: 'web', life: 0, app: 'shop' };
    const uid = toUid({ ...empty, replicas: [] });
    const replicas = Array.from({ length: 15_000 }, (_, index) =>
      createReplicaRecord({
        ...{ id: `${uid}-${index + 1}`, uid, sequence: BigInt(index + 1), desiredRunning: true },
        phase: index === 12_345 ? Phase.FAILED : Phase.RUNNING,
      }),
    );
    const view = createView([{ ...empty, replicas }]);
    const first = list(view, { phases: [Phase.FAILED] });
    expect(toIds(first)).toEqual([]);
    const second = list(view, { phases: [Phase.FAILED], pageToken: first.nextPageToken });
    expect(toIds(second)).toEqual([`${uid}-12346`]);
    expect(second.nextPageToken).toBe('');
  });
});
