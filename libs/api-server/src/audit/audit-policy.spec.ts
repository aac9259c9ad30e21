import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import { getAuditPolicy } from './audit-policy.js';

const methods = [CoordinatorService, AgentService, AdminService].flatMap(
  (service) => service.methods,
);
/** By their names they only read. */
const READING = /^(Get|List|Watch|Plan|Explain|StreamLogs)/;
const AGENTS = ['Heartbeat', 'Session', 'Tunnel'];

describe('getAuditPolicy', () => {
  it.each(methods.map((method) => ({ name: method.toString().replace('rpc ', ''), method })))(
    '$name is decided',
    ({ method }) => {
      const policy = getAuditPolicy(method);
      if (READING.test(method.name)) expect(policy).toBe('reads');
      else if (AGENTS.includes(method.name)) expect(policy).toBe('agents');
      else expect(['acts', 'begins']).toContain(policy);
    },
  );

  it('has no entry for a method that does not exist', () => {
    expect(
      getAuditPolicy({ ...CoordinatorService.method.getNode, localName: 'makeCoffee' }),
    ).toBeUndefined();
  });
});
