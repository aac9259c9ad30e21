import type { DescMethod } from '@bufbuild/protobuf';
import { CoordinatorService } from '@cloudless/api';
import { SERVED_SERVICES } from '../roles/served-by.js';
import { getAuditPolicy } from './audit-policy.js';

const methods = SERVED_SERVICES.flatMap((service): readonly DescMethod[] => service.methods);
/** Names of methods that only read. */
const READ_ONLY_NAME =
  /^(Get|List|Watch|Plan|Explain|Simulate|ProposeMoves|Resolve|Snapshot|StreamLogs|TestPolicy|WhoAmI)/;
/** Methods that return values of secrets, in spite of their names. */
const VALUE_METHODS = ['GetReplicaFiles', 'GetRouteCertificate', 'GetSecret'];
/** Methods that agents and coordinators call all the time. */
const AGENT_METHODS = [
  ...['Heartbeat', 'RenewLease', 'Session', 'Tunnel', 'RenewNodeCertificate'],
  ...['IssueWorkloadCertificate', 'AuthorizeAgentCall', 'SyncNetwork', 'RelayNetwork'],
  'RecordRefusedCalls',
];

describe('getAuditPolicy', () => {
  it.each(methods.map((method) => ({ name: method.toString().replace('rpc ', ''), method })))(
    'returns the policy that follows from the name of $name',
    ({ method }) => {
      const policy = getAuditPolicy(method);
      if (READ_ONLY_NAME.test(method.name) && !VALUE_METHODS.includes(method.name))
        expect(policy).toBe('readOnly');
      else if (AGENT_METHODS.includes(method.name)) expect(policy).toBe('agentReport');
      else expect(['change', 'privileged']).toContain(policy);
    },
  );

  it('returns undefined for an unknown method', () => {
    expect(
      getAuditPolicy({ ...CoordinatorService.method.getNode, localName: 'makeCoffee' }),
    ).toBeUndefined();
  });
});
