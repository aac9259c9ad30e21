import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { CloudlessError, InvalidInputError, type Violation } from '@cloudless/base';
import {
  Disconnect_Mode,
  RestartPolicy_Policy,
  Taint_Effect,
  Volume_EmptyDir_Medium as Medium,
  type ResourceList,
  type WorkloadSpec,
} from '../gen.js';
import { validateExpose } from '../network/exposed-service.js';
import { validateContainer } from './container-rules.js';
import { DEFAULTS, resolveDisconnectTimes, resolvePortName } from './defaults.js';
import { validateFiles } from './files-rules.js';
import { isImageReference } from './image-reference.js';
import { validateMode } from './mode-rules.js';
import { validateProbes } from './probe-rules.js';
import { validateRollout } from './rollout-rules.js';
import { isReservedForRuntime } from './ulimit-rules.js';

/**
 * Validates combinations of fields of a spec, which the rules of its proto cannot express. Call
 * `validateMessage` first.
 * @throws {@link InvalidInputError} with every violation. Paths start with `spec`.
 * @example
 * ```ts
 * checkSpec(spec); // InvalidInputError: spec.runtime: cri needs an image
 * ```
 */
export function checkSpec(spec: WorkloadSpec): void {
  const violations = [
    ...validateStart(spec),
    ...validateMode(spec),
    ...validatePorts(spec),
    ...validateExpose(spec),
    ...validateResources(spec),
    ...validateContainer(spec),
    ...validateFiles(spec),
    ...validateRestart(spec),
    ...validateProbes(spec),
    ...validateDisconnect(spec),
    ...validateRollout(spec),
    ...validateTolerations(spec),
  ];
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** Validates the fields that say what runs: image or command. */
function* validateStart(spec: WorkloadSpec): Generator<Violation> {
  if (spec.image === '' && spec.command.length === 0) {
    yield {
      field: 'spec',
      message: 'image or command is required: an image runs in a container, a command as a process',
    };
  }
  if (spec.command[0] === '')
    yield { field: 'spec.command[0]', message: 'must name an executable' };
  if (spec.image !== '' && spec.runtime === 'process') {
    yield {
      field: 'spec.runtime',
      message: 'the process runtime runs commands, not images; remove runtime or image',
    };
  }
  if (spec.image === '' && spec.command.length > 0 && spec.runtime === 'cri') {
    yield { field: 'spec.runtime', message: 'cri needs an image' };
  }
  if (spec.image !== '' && !isImageReference(spec.image)) {
    const message = `${JSON.stringify(spec.image)} is not an image reference; use one such as nginx:alpine or registry.example:5000/team/web:1.2`;
    yield { field: 'spec.image', message };
  }
  yield* validateNoNul(spec);
}

/**
 * Rejects NUL characters in texts of a process, because the operating system ends arguments, names
 * and paths there.
 */
function* validateNoNul({ command, args, env, workingDir }: WorkloadSpec): Generator<Violation> {
  const texts: readonly (readonly [string, string])[] = [
    ...command.map((word, index) => [`spec.command[${index}]`, word] as const),
    ...args.map((word, index) => [`spec.args[${index}]`, word] as const),
    ...Object.entries(env).map(
      ([key, value]) => [`spec.env[${JSON.stringify(key)}]`, key + value] as const,
    ),
    ['spec.working_dir', workingDir],
  ];
  for (const [field, text] of texts) {
    if (text.includes('\0')) yield { field, message: 'must not contain a NUL character' };
  }
}

function* validatePorts(spec: WorkloadSpec): Generator<Violation> {
  const names = new Set<string>();
  const numbers = new Set<string>();
  for (const [index, port] of spec.ports.entries()) {
    const name = resolvePortName(port);
    const number = `${port.containerPort}/${port.protocol}`;
    if (names.has(name))
      yield { field: `spec.ports[${index}].name`, message: `"${name}" is used twice` };
    if (numbers.has(number))
      yield {
        field: `spec.ports[${index}].container_port`,
        message: `${port.containerPort} is declared twice`,
      };
    names.add(name);
    numbers.add(number);
  }
}

/**
 * Smallest CPU limit in thousandths of a core: the kernel accepts no quota below 1 ms in its period
 * of 100 ms.
 * @see Linux kernel, scheduler/sched-bwc.rst
 */
const MIN_CPU_LIMIT = 10;

function* validateResources({ image, resources }: WorkloadSpec): Generator<Violation> {
  const { requests, limits } = resources ?? {};
  if (
    image !== '' &&
    limits?.cpuMillis !== undefined &&
    limits.cpuMillis > 0 &&
    limits.cpuMillis < MIN_CPU_LIMIT
  ) {
    const message = `${limits.cpuMillis} is below ${MIN_CPU_LIMIT}, the smallest limit that the kernel can enforce`;
    yield { field: 'spec.resources.limits.cpu_millis', message };
    return;
  }
  yield* validateLimit('cpu_millis', limits?.cpuMillis, requests?.cpuMillis);
  yield* validateLimit('memory_bytes', limits?.memoryBytes, requests?.memoryBytes);
  if (Object.keys(limits?.custom ?? {}).length > 0) {
    const message =
      'custom resources cannot be limited, only requested: set spec.resources.requests.custom';
    yield { field: 'spec.resources.limits.custom', message };
  }
  if (requests?.pids !== undefined) {
    const message = 'pids cannot be requested, only limited: set spec.resources.limits.pids';
    yield { field: 'spec.resources.requests.pids', message };
  }
}

/**
 * Rejects a limit below the request. A limit of 0 means no limit; an absent request has a default
 * that is never above the limit.
 */
function* validateLimit<Amount extends number | bigint>(
  name: string,
  limit: Amount | undefined,
  request: Amount | undefined,
): Generator<Violation> {
  if (limit === undefined || request === undefined || limit <= 0 || request <= limit) return;
  yield {
    field: `spec.resources.limits.${name}`,
    message: `${limit} is below the request of ${request}`,
  };
}

function* validateRestart(spec: WorkloadSpec): Generator<Violation> {
  if (spec.restart?.policy === RestartPolicy_Policy.NEVER && (spec.restart.maxRetries ?? 0) > 0) {
    yield {
      field: 'spec.restart.max_retries',
      message: 'a workload with policy NEVER has no retries; use ON_FAILURE',
    };
  }
}

function* validateTolerations({ placement }: WorkloadSpec): Generator<Violation> {
  for (const [index, { effect, tolerationPeriod }] of (placement?.tolerations ?? []).entries()) {
    if (
      tolerationPeriod === undefined ||
      (effect ?? Taint_Effect.NO_EXECUTE) === Taint_Effect.NO_EXECUTE
    )
      continue;
    yield {
      field: `spec.placement.tolerations[${index}].toleration_period`,
      message:
        'only NO_EXECUTE removes running replicas; set effect to NO_EXECUTE, or remove the period',
    };
  }
}

/**
 * Smallest `stop_after`, the default lease of a node: with less, a single lost ping could stop
 * replicas.
 */
const MIN_STOP_AFTER_MS = 3_000;

function* validateDisconnect({ disconnect }: WorkloadSpec): Generator<Violation> {
  if (disconnect === undefined) return;
  const { stopAfterMs, lostAfterMs } = resolveDisconnectTimes({ disconnect });
  if (stopAfterMs === undefined) {
    if (isNotDefault(disconnect.stopAfter, DEFAULTS.stopAfterMs)) {
      yield {
        field: 'spec.disconnect.stop_after',
        message: 'only EXCLUSIVE replicas stop themselves; set spec.disconnect.mode',
      };
    }
    return;
  }
  if (stopAfterMs < MIN_STOP_AFTER_MS) {
    yield {
      field: 'spec.disconnect.stop_after',
      message: `${stopAfterMs} ms is below ${MIN_STOP_AFTER_MS} ms, the lease of a node`,
    };
  }
  if (lostAfterMs < 2 * stopAfterMs) {
    yield {
      field: 'spec.disconnect.lost_after',
      message: `${lostAfterMs} ms is below twice stop_after (${2 * stopAfterMs} ms): the old replica could still run when its replacement starts`,
    };
  }
}

/**
 * Rejects fields that are part of the API and not built yet. A field with its default value is
 * never rejected.
 * @throws kind `unimplemented` with the paths of all such fields.
 */
export function checkSupported(spec: WorkloadSpec): void {
  const fields = listUnsupportedFields(spec);
  if (fields.length === 0) return;
  throw new CloudlessError(
    'unimplemented',
    `${fields.join(', ')}: not supported in this version; leave ${fields.length === 1 ? 'it' : 'them'} out`,
  );
}

function listUnsupportedFields(spec: WorkloadSpec): string[] {
  const { resources } = spec;
  const checks: readonly (readonly [string, boolean])[] = [
    ...listContainerChecks(spec),
    // A container runtime stops no container by itself, so a replica on a disconnected node could
    // run beside its replacement.
    [
      'spec.disconnect.mode (EXCLUSIVE with an image)',
      spec.image !== '' && spec.disconnect?.mode === Disconnect_Mode.EXCLUSIVE,
    ],
    ['spec.resources.requests.gpus', (resources?.requests?.gpus ?? 0) !== 0],
    ...listLimitChecks(resources?.limits),
  ];
  return checks.filter(([, isUsed]) => isUsed).map(([field]) => field);
}

/** Returns container fields that are not built, each with whether the spec uses the field. */
function listContainerChecks(spec: WorkloadSpec): readonly (readonly [string, boolean])[] {
  return [
    ...spec.volumes.map(({ source }, index) => {
      // A node cannot limit the size of a directory on disk.
      const isSized =
        source.case === 'emptyDir' &&
        source.value.sizeLimitBytes !== 0n &&
        source.value.medium !== Medium.MEMORY;
      const path = `spec.volumes[${index}].empty_dir.size_limit_bytes`;
      return [`${path} (only with medium MEMORY)`, isSized] as const;
    }),
    // These limits would also apply to the process of the runtime that starts the container.
    ...spec.ulimits.map(
      ({ name }, index) =>
        [`spec.ulimits[${index}].name (${name})`, isReservedForRuntime(name)] as const,
    ),
  ];
}

/** Returns limits that no runtime enforces, each with whether the spec uses the limit. */
function listLimitChecks(list: ResourceList | undefined): readonly (readonly [string, boolean])[] {
  const path = 'spec.resources.limits';
  return [
    [`${path}.storage_bytes`, (list?.storageBytes ?? 0n) !== 0n],
    [`${path}.bandwidth_bps`, (list?.bandwidthBps ?? 0n) !== 0n],
    [`${path}.gpus`, (list?.gpus ?? 0) !== 0],
  ];
}

function isNotDefault(duration: Duration | undefined, defaultMs: number): boolean {
  return duration !== undefined && durationMs(duration) !== defaultMs;
}
