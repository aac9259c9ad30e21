import { InvalidInputError, toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { describeReasons, type SchedulerHostPort, type PlacementRequest } from '../index.js';
import {
  aCluster,
  aNode,
  aRequest,
  aReservation,
  placedOn,
  reservationFor,
} from '../testing/builders.js';

const tcp = (...numbers: number[]): SchedulerHostPort[] =>
  numbers.map((number) => ({ protocol: 'tcp', number }));
const udp = (...numbers: number[]): SchedulerHostPort[] =>
  numbers.map((number) => ({ protocol: 'udp', number }));
const refusalOf = (
  placement: ReturnType<ReturnType<typeof aCluster>['place']>[number] | undefined,
): string | undefined =>
  placement?.placed === false ? describeReasons(placement.reasons) : undefined;

describe('filter of host ports', () => {
  it.each<{
    name: string;
    held?: SchedulerHostPort[];
    leaving?: boolean;
    wanted?: SchedulerHostPort[];
    refused?: string;
  }>([
    { name: 'accepts a node on which the port is free', held: tcp(8081), wanted: tcp(8080) },
    {
      name: 'excludes a node on which the port is held',
      held: tcp(8080),
      wanted: tcp(8080),
      refused: 'host port 8080 is taken',
    },
    {
      name: 'accepts a node on which the number is held for another protocol',
      held: udp(53),
      wanted: tcp(53),
    },
    {
      name: 'excludes a node on which the UDP port is held',
      held: udp(53),
      wanted: udp(53),
      refused: 'host port 53/udp is taken',
    },
    {
      name: 'excludes a node on which one of several ports is held',
      held: tcp(443),
      wanted: tcp(80, 443),
      refused: 'host port 443 is taken',
    },
    {
      name: 'names the lowest of several held ports',
      held: tcp(443, 80),
      wanted: tcp(443, 80),
      refused: 'host port 80 is taken',
    },
    {
      name: 'excludes a node on which a leaving replica holds the port',
      held: tcp(80),
      leaving: true,
      wanted: tcp(80),
      refused: 'host port 80 is taken',
    },
    { name: 'accepts a request without host ports on a node with held ports', held: tcp(80) },
    { name: 'treats a port that is listed twice as one port', wanted: [...tcp(80), ...tcp(80)] },
  ])('$name', ({ held = [], leaving = false, wanted = [], refused }) => {
    const cluster = aCluster(
      [aNode('n1')],
      [aReservation('other-1', { hostPorts: held, leaving })],
    );
    const request = aRequest({ hostPorts: wanted });
    expect(refusalOf(cluster.place(request, 1)[0])).toBe(refused && `${refused}: 1 of 1 nodes`);
    expect(refusalOf(cluster.placeOn(request, [toNodeId('n1')])[0])).toBe(
      refused && `${refused}: 1 of 1 nodes`,
    );
    expect(cluster.explain(request)).toMatchObject([
      refused === undefined ? { fits: true } : { fits: false, reasons: [{ text: refused }] },
    ]);
    // Eligibility does not consider held ports, as a port may become free.
    expect(cluster.eligibleNodes(request)).toEqual([{ nodeId: 'n1', schedulable: true }]);
  });

  it('allows one replica of a workload per node and gives the reason for the other replicas', () => {
    const cluster = aCluster(
      [aNode('n1'), aNode('n2'), aNode('n3', { zone: 'b' })],
      [aReservation('db-1', { nodeId: toNodeId('n2') })],
    );
    const request = aRequest({ hostPorts: tcp(8080) });
    const placements = cluster.place(request, 5);
    expect(placements.map((placement) => placement.placed && placement.nodeId)).toEqual([
      'n3',
      'n1',
      'n2',
      false,
      false,
    ]);
    expect(refusalOf(placements[3])).toBe('host port 8080 is taken: 3 of 3 nodes');
    expect(refusalOf(cluster.clone().placeOn(request, ['n1', 'n1'].map(toNodeId))[1])).toBe(
      'host port 8080 is taken: 1 of 1 nodes',
    );
  });

  it('is counted in the reasons beside other filters', () => {
    const nodes = [
      aNode('n1'),
      aNode('n2'),
      aNode('n3', { capacity: { cpuMillis: 100, memoryBytes: 100 } }),
    ];
    const held = ['n1', 'n2'].map((id) =>
      aReservation(`on-${id}`, { nodeId: toNodeId(id), hostPorts: tcp(80) }),
    );
    expect(refusalOf(aCluster(nodes, held).place(aRequest({ hostPorts: tcp(80) }), 1)[0])).toBe(
      'host port 80 is taken: 2 of 3 nodes; needs 500m CPU, more than the node has: 1 of 3 nodes; needs 512Mi memory, more than the node has: 1 of 3 nodes',
    );
  });

  it('accepts a node again when the last replica that held the port is released', () => {
    const request = aRequest({ hostPorts: tcp(80) });
    // Two reservations may hold the same port, as after the return of a lost node.
    const cluster = aCluster(
      [aNode('n1')],
      ['a', 'b'].map((id) => aReservation(id, { hostPorts: tcp(80) })),
    );
    cluster.release(toReplicaId('a'));
    expect(placedOn(cluster, request)).toEqual([undefined]);
    const copy = cluster.clone();
    cluster.release(toReplicaId('b'));
    expect([placedOn(cluster, request), placedOn(copy, request)]).toEqual([['n1'], [undefined]]);
    cluster.reserve(reservationFor(request, 'web-1', 'n1'));
    expect(placedOn(cluster, request)).toEqual([undefined]);
    // A reservation replaces the older reservation of the same replica.
    cluster.reserve(reservationFor({ ...request, hostPorts: [] }, 'web-1', 'n1'));
    expect(placedOn(cluster, request)).toEqual(['n1']);
  });

  it('keeps a zone eligible for a required spread when the port is taken on all its nodes, because the port may become free', () => {
    const cluster = aCluster(
      [aNode('n1'), aNode('n2', { zone: 'b' })],
      [
        aReservation('db-1', {
          nodeId: toNodeId('n2'),
          workloadId: toWorkloadId('db'),
          hostPorts: tcp(80),
        }),
      ],
    );
    const request = aRequest({
      hostPorts: tcp(80),
      spread: { topology: 'zone', mode: 'required' },
    });
    expect(
      cluster.place(request, 2).map((placement) => placement.placed && placement.nodeId),
    ).toEqual(['n1', false]);
  });

  it.each<Partial<PlacementRequest>>([
    { hostPorts: tcp(0) },
    { hostPorts: tcp(65_536) },
    { hostPorts: tcp(1.5) },
    { hostPorts: [{ protocol: 'sctp' as 'tcp', number: 80 }] },
  ])('rejects the invalid port %j', ({ hostPorts = [] }) => {
    const cluster = aCluster([aNode('n1')]);
    expect(() => cluster.place(aRequest({ hostPorts }), 1)).toThrow(InvalidInputError);
    expect(() => cluster.reserve(aReservation('web-1', { hostPorts }))).toThrow(/hostPorts\[0\]/);
  });
});
