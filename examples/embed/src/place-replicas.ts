// Places replicas on machines with the scheduler, and prints why a machine does not fit.
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { createCluster, describeReasons, type PlacementRequest } from '@cloudless/scheduler';

const MIB = 1024 ** 2;

// A model of the machines. Keep the model up to date with `upsertNode` and `removeNode`.
const cluster = createCluster();
for (const [id, zone, cpuMillis] of [
  ['small', 'zone-a', 1_000],
  ['large', 'zone-a', 4_000],
  ['edge', 'zone-b', 1_000],
] as const) {
  cluster.upsertNode({
    id: toNodeId(id),
    region: 'home',
    zone,
    capacity: { cpuMillis, memoryBytes: 2_048 * MIB },
  });
}

const web: PlacementRequest = {
  workloadId: toWorkloadId('web'),
  namespace: 'default',
  labels: { app: 'web' },
  resources: { cpuMillis: 600, memoryBytes: 256 * MIB },
};

// `place` only decides; `reserve` records a placement that you carry out.
let sequence = 0;
for (const placement of cluster.place(web, 3)) {
  if (!placement.placed) {
    console.log(`no node: ${describeReasons(placement.reasons)}`);
    continue;
  }
  sequence += 1;
  const replicaId = toReplicaId(`web-${sequence}`);
  cluster.reserve({ ...web, replicaId, nodeId: placement.nodeId });
  console.log(`${replicaId} on ${placement.nodeId}`);
}

// A database that needs more CPU than any machine of zone-b has.
const database: PlacementRequest = {
  ...web,
  workloadId: toWorkloadId('database'),
  zones: ['zone-b'],
  resources: { cpuMillis: 2_000, memoryBytes: 512 * MIB },
};
for (const node of cluster.explain(database))
  console.log(
    `database on ${node.nodeId}: ${node.fits ? 'fits' : node.reasons.map(({ text }) => text).join('; ')}`,
  );
