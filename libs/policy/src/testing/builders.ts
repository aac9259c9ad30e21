import type { MessageInitShape } from '@bufbuild/protobuf';
import { withDefaults, type WorkloadSpecSchema } from '@cloudless/api';
import { aSpec } from '@cloudless/api/testing';
import type { Policy, PolicyRule, PolicySubject } from '../model.js';

/** Returns the container `default/web` with the given fields of its spec. */
export function aSubject(
  changes: MessageInitShape<typeof WorkloadSpecSchema> = {},
  { namespace = 'default', name = 'web' } = {},
): PolicySubject {
  const spec = aSpec({ command: [], image: 'nginx:alpine', ...changes });
  return { namespace, name, spec: withDefaults(spec) };
}

/** Returns the process `default/web` with the given fields of its spec. */
export function aProcess(changes: MessageInitShape<typeof WorkloadSpecSchema> = {}): PolicySubject {
  return { namespace: 'default', name: 'web', spec: withDefaults(aSpec(changes)) };
}

/** Returns a policy that denies privileged containers everywhere, with the given fields replaced. */
export function aPolicy(changes: Partial<Policy> = {}): Policy {
  return {
    name: 'policy',
    namespace: '*',
    enabled: true,
    priority: 0,
    action: 'DENY',
    rules: [aRule({ type: 'PRIVILEGED_MODE', config: {} })],
    ...changes,
  };
}

/** Returns a rule named `rule`. */
export function aRule(rule: Pick<PolicyRule, 'type' | 'config'> & Partial<PolicyRule>): PolicyRule {
  return { name: 'rule', ...rule } as PolicyRule;
}
