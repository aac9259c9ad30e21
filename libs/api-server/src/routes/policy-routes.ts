import type { ServiceImpl } from '@connectrpc/connect';
import { PolicyService } from '@cloudless/api';
import type { AuditSubject } from '../audit/audit-event.js';
import type { PolicyHandlers } from '../policy/policy-handlers.js';
import type { PolicyReads } from '../policy/policy-reads.js';
import type { PolicyTests } from '../policy/policy-tests.js';
import type { ReadDeps } from '../ports.js';
import { withSlowReaderTimeout } from '../watch/slow-reader-timeout.js';
import type { CallRoutes } from './call-routes.js';

const calls = PolicyService.method;

/** Creates the implementation of PolicyService. */
export function createPolicyRoutes(
  routes: CallRoutes,
  policies: PolicyHandlers,
  reads: ReturnType<typeof createPolicyReads>,
): ServiceImpl<typeof PolicyService> {
  return {
    createPolicy: routes.change(
      calls.createPolicy,
      (request, entry) => policies.createPolicy(request, entry),
      describePolicy,
    ),
    updatePolicy: routes.change(
      calls.updatePolicy,
      (request, entry) => policies.updatePolicy(request, entry),
      describePolicy,
    ),
    deletePolicy: routes.change(
      calls.deletePolicy,
      (request, entry) => policies.deletePolicy(request, entry),
      describePolicy,
    ),
    ...reads,
  };
}

/** Creates the reads of PolicyService, which every coordinator serves. */
export function createPolicyReads(
  { clock }: Pick<ReadDeps, 'clock'>,
  { reads, tests }: { readonly reads: PolicyReads; readonly tests: PolicyTests },
) {
  return {
    getPolicy: (request, context) => reads.getPolicy(request, context),
    listPolicies: (request, context) => reads.listPolicies(request, context),
    watchPolicies: (request, context) =>
      withSlowReaderTimeout(reads.watchPolicies(request, context), clock),
    testPolicy: (request, context) => tests.testPolicy(request, context),
  } satisfies Partial<ServiceImpl<typeof PolicyService>>;
}

function describePolicy({ name }: { readonly name: string }): AuditSubject {
  return { object: `policy ${name}` };
}
