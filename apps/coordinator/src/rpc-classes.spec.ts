import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import { CALL_PRIORITIES } from '@cloudless/rpc-node/server';
import { classifyRpc } from './rpc-classes.js';

const services = [CoordinatorService, AgentService, AdminService];
const rpcsWithPriority = (priority: string): readonly string[] =>
  CoordinatorService.methods
    .filter((method) => classifyRpc(method)?.priority === priority)
    .map(({ name }) => name);

it.each(
  services.flatMap(({ methods }) => methods.map((method) => ({ rpc: String(method), method }))),
)('classifyRpc gives $rpc a priority', ({ method }) => {
  expect(CALL_PRIORITIES).toContain(classifyRpc(method)?.priority);
});

it('classifyRpc gives sessions of agents control priority, and calls that reduce load stop priority', () => {
  expect(rpcsWithPriority('control')).toEqual(['EnrollNode', 'Heartbeat', 'Session', 'Tunnel']);
  expect(rpcsWithPriority('stop')).toEqual([
    'CordonNode',
    'DrainNode',
    'ConfirmNodeLost',
    'RemoveNode',
    'ScaleWorkload',
    'DeleteWorkload',
    'PauseRollout',
  ]);
});

it('classifyRpc gives read priority to exactly the read-only calls', () => {
  const reads = rpcsWithPriority('read');
  expect(reads.filter((name) => !/^(Get|List|Watch|Explain|Plan|Stream)/.test(name))).toEqual([]);
  const others = CoordinatorService.methods
    .map(({ name }) => name)
    .filter((name) => !reads.includes(name));
  expect(others.filter((name) => /^(Get|List|Watch)/.test(name))).toEqual([]);
});
