import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { matchesLabels, parseLabelSelector } from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { toNameKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

/** Names that sort differently with and without a separator. */
const NAMESPACES = ['a', 'a-b', 'b'];
const NAMES = ['db', 'web', 'web-2', 'x'];

const arbWorkload = fc.record({
  namespace: fc.constantFrom(...NAMESPACES),
  name: fc.constantFrom(...NAMES),
  app: fc.constantFrom('shop', 'bank'),
  nodeId: fc.constantFrom('', 'node-1'),
});
type Workload = typeof arbWorkload extends fc.Arbitrary<infer Value> ? Value : never;

const toKey = ({ namespace, name }: Workload): string => toNameKeyId(namespace, name);
const toUid = (workload: Workload): string => Buffer.from(toKey(workload)).toString('hex');

async function put(bed: ApiTestBed, workload: Workload): Promise<void> {
  const { namespace, name, app, nodeId } = workload;
  const uid = toUid(workload);
  const record = create(WorkloadRecordSchema, { uid, namespace, name, spec: { labels: { app } } });
  const transaction = bed.state.transaction().put('workload', uid, record);
  if (nodeId !== '')
    transaction.createReplica(
      create(ReplicaRecordSchema, {
        id: `${uid}-1`,
        uid,
        sequence: 1n,
        nodeId,
        desiredRunning: true,
      }),
    );
  await bed.state.commit(transaction);
}

describe('ListWorkloads', () => {
  it('pages through the index as through a filter and sort of everything, and neither skips nor repeats a workload that stays', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(arbWorkload, { selector: toKey, maxLength: 12 }),
        fc.array(fc.tuple(fc.nat(11), fc.boolean()), { maxLength: 8 }),
        fc.constantFrom('', ...NAMESPACES),
        fc.constantFrom('', 'app=shop'),
        fc.constantFrom('', 'node-1'),
        fc.integer({ min: 1, max: 4 }),
        async (workloads, changes, namespace, labelSelector, nodeId, pageSize) => {
          const bed = await ApiTestBed.open();
          const present = new Map<string, Workload>();
          for (const [index, workload] of workloads.entries()) {
            if (index % 4 === 3) continue; // added below, between two pages
            await put(bed, workload);
            present.set(toKey(workload), workload);
          }
          const isListed = (workload: Workload): boolean =>
            (namespace === '' || workload.namespace === namespace) &&
            (nodeId === '' || workload.nodeId === nodeId) &&
            matchesLabels(parseLabelSelector(labelSelector), { app: workload.app });
          const listed = [...present.values()].filter(isListed).map(toKey).sort();
          const touched = new Set<string>();
          const read: string[] = [];
          let pageToken = '';
          do {
            const request = { namespace, labelSelector, nodeId, pageSize, pageToken };
            const page = await bed.client.listWorkloads(request);
            read.push(...page.workloads.map(({ namespace: of, name }) => toNameKeyId(of, name)));
            pageToken = page.nextPageToken;
            const [index, isAdded] = changes.pop() ?? [];
            const changed = index === undefined ? undefined : workloads[index];
            if (changed === undefined) continue;
            touched.add(toKey(changed));
            if (!isAdded)
              await bed.state.commit(bed.state.transaction().delete('workload', toUid(changed)));
            else if (!present.has(toKey(changed))) await put(bed, changed);
            present.set(toKey(changed), changed);
          } while (pageToken !== '');
          expect(read).toEqual([...new Set(read)].sort());
          const stays = (key: string): boolean => !touched.has(key);
          expect(read.filter(stays)).toEqual(listed.filter(stays));
          await bed.close();
        },
      ),
      { numRuns: 60 },
    );
  });
});
