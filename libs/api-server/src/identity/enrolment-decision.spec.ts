import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { NodeStatus_Phase as Phase } from '@cloudless/api';
import { NodeBanRecordSchema, NodeRecordSchema } from '@cloudless/api/store';
import { decideEnrolment } from './enrolment-decision.js';

const request = {
  nodeId: 'n1',
  instanceId: 'this-machine-12345',
  publicKeySha256: 'new',
  existing: undefined,
  ban: undefined,
  phase: Phase.UNKNOWN,
  replicaCount: 0,
};

function aNode(
  instanceId: string,
  fields: Pick<MessageInitShape<typeof NodeRecordSchema>, 'hello' | 'lost' | 'lossConfirmed'> = {},
) {
  return create(NodeRecordSchema, {
    id: 'n1',
    instanceId,
    identity: { current: { publicKeySha256: 'old' } },
    ...fields,
  });
}

const same = aNode('this-machine-12345');
const other = aNode('other-machine-1234');

describe('decideEnrolment', () => {
  it.each([
    { name: 'creates an unknown node', given: {}, expected: 'create' },
    {
      name: 'repeats the reply for the machine and key of the node, even while the node is alive',
      given: { existing: same, publicKeySha256: 'old', phase: Phase.READY },
      expected: 'repeat',
    },
    {
      name: 'lets the machine of a node that is away come back',
      given: { existing: same, phase: Phase.AWAY, replicaCount: 3 },
      expected: 'return',
    },
    {
      name: 'lets the machine of a lost node with replicas come back',
      given: { existing: same, phase: Phase.LOST, replicaCount: 3 },
      expected: 'return',
    },
    {
      name: 'lets a machine of a cluster that had no identities join',
      given: { existing: aNode('this-machine-12345', { hello: {} }) },
      expected: 'return',
    },
    {
      name: 'gives the id of a lost node without replicas to another machine',
      given: { existing: other, phase: Phase.LOST },
      expected: 'replace',
    },
    {
      name: 'gives the id of a node that is confirmed dead to another machine',
      given: {
        existing: aNode('other-machine-1234', { lost: true, lossConfirmed: true }),
        phase: Phase.UNKNOWN,
        replicaCount: 3,
      },
      expected: 'replace',
    },
  ])('$name', ({ given, expected }) => {
    expect(decideEnrolment({ ...request, ...given })).toBe(expected);
  });

  it.each([
    {
      name: 'the machine of a node that is connected, with a new key',
      given: { existing: same, phase: Phase.READY },
      message:
        'node "n1" is alive, so its machine cannot join again; stop its agent, and join once the lease of the node has ended',
    },
    {
      name: 'another machine while the node is connected',
      given: { existing: other, phase: Phase.READY },
      message: 'node "n1" is alive on another machine; choose another name for this machine',
    },
    {
      name: 'another machine while the lease of the node runs',
      given: { existing: other, phase: Phase.DISCONNECTED },
      message: 'node "n1" is alive on another machine; choose another name for this machine',
    },
    {
      name: 'another machine while the node is away',
      given: { existing: other, phase: Phase.AWAY },
      message:
        'node "n1" belongs to another machine, which may come back; choose another name for this machine, or remove the node with "cloudlessctl node remove n1" and join again',
    },
    {
      name: 'another machine while the lost node may still run replicas',
      given: { existing: other, phase: Phase.LOST, replicaCount: 2 },
      message:
        'node "n1" is lost, but its machine may still run 2 replicas; if that machine is dead, run "cloudlessctl node confirm-lost n1" and join again, otherwise choose another name for this machine',
    },
  ])('refuses $name', ({ given, message }) => {
    expect(() => decideEnrolment({ ...request, ...given })).toThrow(
      expect.objectContaining({ reason: 'NODE_EXISTS', message }),
    );
  });

  it('refuses every machine with the id of a banned node', () => {
    const ban = create(NodeBanRecordSchema);
    for (const existing of [undefined, same, other]) {
      expect(() => decideEnrolment({ ...request, existing, ban })).toThrow(
        expect.objectContaining({ reason: 'NODE_BANNED', kind: 'denied' }),
      );
    }
  });
});
