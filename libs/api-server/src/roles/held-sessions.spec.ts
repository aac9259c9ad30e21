import { create } from '@bufbuild/protobuf';
import { ConnectError, createClient } from '@connectrpc/connect';
import {
  AgentMessageSchema,
  CoordinatorService,
  readLeaderHint,
  type AgentMessage,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { FollowerBed, createFakeLeader } from '../testing/follower-bed.js';
import { ScriptedAgent } from '../testing/scripted-agent.js';

let bed: ApiTestBed;
let follower: FollowerBed;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  follower = await FollowerBed.open(bed);
});
afterEach(async () => {
  await follower.close();
  await bed.stop();
});

const NO_LEADER = 'no coordinator leads at the moment; retry';

/** Opens a session of an agent of this node at the follower. */
async function openSession(
  unreachableEpoch = 0n,
  nodeId = 'node-1',
  unreachableAddress = 'http://c1',
): Promise<ScriptedAgent> {
  const instanceId = `instance-of-${nodeId}-0123456789`;
  const { clusterId } = await bed.client.enrollNode({ nodeId, instanceId });
  const agent = new ScriptedAgent(follower.transport, nodeId, {
    ...{ protocolMin: 1, protocolMax: 2, nodeId, instanceId, clusterId },
    ...{ unreachableEpoch, unreachableAddress, maxReplicas: 10 },
  });
  await bed.clock.advance(0);
  return agent;
}

/**
 * Returns the answer to an agent: the address of a leader, the text of an error or `welcome`;
 * `waits` while there is none.
 */
function readAnswer({ failure, kinds }: ScriptedAgent): string {
  if (failure === undefined) return kinds[0] ?? 'waits';
  return readLeaderHint(failure)?.address ?? ConnectError.from(failure).rawMessage;
}

async function* silence(): AsyncGenerator<AgentMessage> {
  await new Promise(() => undefined);
}
const lead = (): void => {
  follower.setLeader();
  follower.router.serve({ role: 'leader', calls: bed.api.calls });
};
const cutOff = (): void => {
  Object.defineProperty(follower.state, 'viewAgeMs', { value: 2_001 });
};

describe('a coordinator that follows', () => {
  it('refuses the session of an agent at once while another coordinator leads, and names it', async () => {
    follower.setLeader(createFakeLeader(bed));
    const { failure } = await openSession();
    expect(ConnectError.from(failure).rawMessage).toBe(
      'the streams of agents are served by the leader http://c1; call the leader',
    );
    expect(readLeaderHint(failure)).toEqual({ address: 'http://c1', id: 'c1', epoch: '1' });
  });

  it('refuses a session after a second when its view is older than the lease of a leader', async () => {
    follower.setLeader(createFakeLeader(bed));
    cutOff();
    const agent = await openSession();
    await bed.clock.advance(999);
    expect(readAnswer(agent)).toBe('waits');
    await bed.clock.advance(1);
    expect(readAnswer(agent)).toBe(NO_LEADER);
  });

  it.each([
    { name: 'no coordinator leads', leads: false, unreachableEpoch: 0n },
    {
      name: 'the agent does not reach the leader',
      leads: true,
      unreachableEpoch: 1n,
      holdMs: 1_000,
    },
  ])('holds a session while $name, and names the next leader', async (row) => {
    if (row.leads) follower.setLeader(createFakeLeader(bed));
    const agent = await openSession(row.unreachableEpoch);
    await bed.clock.advance(2_999);
    expect(readAnswer(agent)).toBe('waits');
    follower.setLeader(createFakeLeader(bed, 2n));
    await bed.clock.advance(1);
    expect(readAnswer(agent)).toBe('http://c1');
  });

  it('names the leader that an agent does not reach after the hold: that leader is alive', async () => {
    follower.setLeader(createFakeLeader(bed));
    const agent = await openSession(1n);
    await bed.clock.advance(3_000);
    expect(readAnswer(agent)).toBe('http://c1');
  });

  it('names at once a leader with another address than the one that the agent does not reach', async () => {
    follower.setLeader(createFakeLeader(bed));
    expect(readAnswer(await openSession(1n, 'node-1', 'http://load-balancer'))).toBe('http://c1');
  });

  it.each([
    { name: 'it was restarted before the lease of its earlier process has ended', epoch: 0n },
    { name: 'it is about to lead', epoch: 1n },
  ])('holds a session while the view names this coordinator itself: $name', async ({ epoch }) => {
    follower.setLeader({
      ...createFakeLeader(bed),
      known: { epoch: 2n, address: 'http://c2', coordinatorId: 'c2' },
    });
    const agent = await openSession(epoch);
    await bed.clock.advance(2_999);
    expect(readAnswer(agent)).toBe('waits');
    await bed.clock.advance(1);
    expect(readAnswer(agent)).toBe(NO_LEADER);
  });

  it('gives a session up when no coordinator leads for the whole hold', async () => {
    const agent = await openSession();
    await bed.clock.advance(3_000);
    expect(readAnswer(agent)).toBe(NO_LEADER);
  });

  it('gives a held session up when its view has become too old', async () => {
    const agent = await openSession();
    await bed.clock.advance(600);
    cutOff();
    await bed.clock.advance(1_000);
    expect(readAnswer(agent)).toBe(NO_LEADER);
  });

  it.each([
    { name: 'sends nothing', messages: (): AsyncIterable<AgentMessage> => silence() },
    {
      name: 'begins with another message than Hello',
      messages: async function* (): AsyncGenerator<AgentMessage> {
        yield create(AgentMessageSchema, { message: { case: 'usage', value: {} } });
        yield* silence();
      },
    },
  ])('refuses a client that $name', async ({ messages }) => {
    const client = createClient(CoordinatorService, follower.transport);
    const answer = client.session(messages())[Symbol.asyncIterator]().next();
    const outcome = answer.catch((reason: unknown) => ConnectError.from(reason).rawMessage);
    await bed.clock.advance(3_000);
    expect(await outcome).toBe(NO_LEADER);
  });

  it('ends its held sessions when it closes', async () => {
    const agent = await openSession();
    await bed.clock.advance(100);
    follower.router.close();
    await bed.clock.advance(10);
    expect(readAnswer(agent)).toBe(NO_LEADER);
  });

  it('serves held sessions itself when it becomes the leader, one after the other', async () => {
    const agents: ScriptedAgent[] = [];
    for (const nodeId of ['node-1', 'node-2', 'node-3', 'node-4'])
      agents.push(await openSession(0n, nodeId));
    lead();
    const welcomed = (): number => agents.filter(({ kinds }) => kinds[0] === 'welcome').length;
    await bed.clock.advance(4);
    expect(welcomed()).toBe(2);
    await bed.clock.advance(5);
    expect(welcomed()).toBe(4);
  });
});
