import { toComposeSize } from './compose-parts.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';
import { toCpu } from './words.js';

/** Converts the map `deploy` of a service to fields of a spec. */
export function convertDeploy(deploy: SourceMap): Record<string, unknown> {
  const mode = deploy.takeText('mode');
  if (mode !== undefined && mode !== 'replicated' && mode !== 'global')
    deploy.note('mode', `${mode} has no equivalent`);
  const resources = deploy.takeMap('resources');
  const fields = withoutEmpty({
    mode: mode === 'global' ? 'GLOBAL' : undefined,
    replicas: deploy.takeInteger('replicas'),
    resources: withoutEmpty({
      requests: convertAmounts(resources.takeMap('reservations')),
      limits: convertAmounts(resources.takeMap('limits')),
    }),
    restart: convertRestartPolicy(deploy.takeMap('restart_policy')),
    rollout: convertUpdate(deploy.takeMap('update_config')),
    placement: convertPlacement(deploy.takeMap('placement')),
    labels: deploy.takeMap('labels').takePairs(),
  });
  resources.finish();
  deploy.finish({
    endpoint_mode: 'a service has one address, unless spec.headless of the service is set',
    rollback_config: 'a rollback uses the settings of the rollout',
  });
  return fields;
}

function convertAmounts(amounts: SourceMap): Record<string, unknown> {
  const fields = withoutEmpty({
    cpuMillis: takeCpu(amounts, 'cpus'),
    memoryBytes: toComposeSize(amounts, 'memory'),
    pids: amounts.takeInteger('pids'),
  });
  amounts.finish();
  return fields;
}

/** Converts the limits that stand at the service itself (`cpus`, `mem_limit`). */
export function convertLimits(service: SourceMap): Record<string, unknown> {
  return withoutEmpty({
    requests: withoutEmpty({ memoryBytes: toComposeSize(service, 'mem_reservation') }),
    limits: withoutEmpty({
      cpuMillis: takeCpu(service, 'cpus'),
      memoryBytes: toComposeSize(service, 'mem_limit'),
      pids: service.takeInteger('pids_limit'),
    }),
  });
}

function takeCpu(amounts: SourceMap, key: string): string | undefined {
  const text = amounts.takeText(key);
  if (text === undefined) return undefined;
  const cpu = toCpu(text);
  if ('value' in cpu) return cpu.value;
  amounts.note(key, `left out: ${cpu.problem}`);
  return undefined;
}

function convertRestartPolicy(policy: SourceMap): Record<string, unknown> | undefined {
  const condition = policy.takeText('condition');
  const fields = withoutEmpty({
    policy: { none: 'NEVER', 'on-failure': 'ON_FAILURE', any: 'ALWAYS' }[condition ?? ''],
    maxRetries: policy.takeInteger('max_attempts'),
  });
  policy.finish({
    delay: 'the delay grows with each restart',
    window: 'restarts are counted from the start of a replica',
  });
  return policy.keys.length === 0 ? undefined : fields;
}

function convertUpdate(update: SourceMap): Record<string, unknown> {
  const parallelism = update.takeInteger('parallelism') ?? 1;
  const isStartFirst = update.takeText('order') === 'start-first';
  const action = update.takeText('failure_action');
  if (action === 'continue')
    update.note('failure_action', 'continue has no equivalent: a failing rollout pauses');
  const fields = withoutEmpty({
    maxSurge: isStartFirst ? Math.max(1, parallelism) : 0,
    maxUnavailable: isStartFirst ? undefined : Math.max(1, parallelism),
    onFailure: action === 'rollback' ? 'ROLLBACK' : undefined,
    minReadyDuration: update.takeText('monitor'),
  });
  update.finish({
    delay: 'use rollout.minReadyDuration, or rollout.steps with a wait',
    max_failure_ratio: 'use rollout.maxFailedNewPercent',
  });
  return update.keys.length === 0 ? {} : fields;
}

function convertPlacement(placement: SourceMap): Record<string, unknown> {
  const nodeSelector: Record<string, string> = {};
  for (const constraint of placement.takeTexts('constraints')) {
    const [, key, value] = /^node\.labels\.(\S+?)\s*==\s*(\S+)$/.exec(constraint) ?? [];
    if (key !== undefined && value !== undefined) nodeSelector[key] = value;
    else placement.note('constraints', `${constraint} has no equivalent: use labels of nodes`);
  }
  placement.finish({
    preferences: 'replicas are spread over zones and nodes without a setting',
    max_replicas_per_node: 'use placement.spread',
  });
  return withoutEmpty({ nodeSelector });
}
