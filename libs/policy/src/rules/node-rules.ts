import type { Volume, WorkloadSpec } from '@cloudless/api';
import type { Finding, VolumeType } from '../model.js';
import { show } from './config-reader.js';
import { SATISFIED, type RuleDefinition } from './rule-definition.js';

/** The network and the ports of the node. */
export const hostNetwork: RuleDefinition<'HOST_NETWORK'> = {
  needsContainer: true,
  read: (reader) => reader.switch('forbidHostPorts'),
  create:
    ({ forbidHostPorts }) =>
    ({ spec: { network, ports } }) => {
      const usesHostNetwork = network?.hostNetwork === true;
      if (!usesHostNetwork && forbidHostPorts !== true) return SATISFIED;
      const findings: Finding[] = usesHostNetwork
        ? [{ field: 'spec.network.host_network', found: 'true', allowed: 'false' }]
        : [];
      for (const [index, { hostPort }] of ports.entries()) {
        if (forbidHostPorts !== true || hostPort === 0) continue;
        const field = `spec.ports[${index}].host_port`;
        findings.push({ field, found: String(hostPort), allowed: 'no port of the node' });
      }
      return findings;
    },
};

/** Sources of volumes by their case in the message. */
const VOLUME_TYPES: Readonly<Record<NonNullable<Volume['source']['case']>, VolumeType>> = {
  emptyDir: 'EMPTY_DIR',
  hostPath: 'HOST_PATH',
  named: 'NAMED',
};
const VOLUME_TYPE_NAMES: readonly string[] = Object.values(VOLUME_TYPES);

/** Sources of volumes. */
export const volumeType: RuleDefinition<'VOLUME_TYPE'> = {
  needsContainer: true,
  read: (reader) => ({
    allowed: [],
    ...(reader.texts('allowed', {
      required: true,
      allowEmpty: true,
      isAllowed: (text) => VOLUME_TYPE_NAMES.includes(text),
      expected: VOLUME_TYPE_NAMES.join(', '),
    }) as { readonly allowed?: readonly VolumeType[] }),
    ...reader.texts('hostPaths', {
      isAllowed: (text) => /^\/(?!.*(?:\/\.{0,2}(?:\/|$)))./.test(text),
      expected: 'absolute paths without ., .. and slashes at the end',
    }),
    ...reader.switch('readOnlyHostPaths'),
  }),
  create: (config) => {
    const { allowed, hostPaths, readOnlyHostPaths } = config;
    if (!allowed.includes('HOST_PATH') && (hostPaths ?? readOnlyHostPaths) !== undefined)
      throw new Error('host_paths and read_only_host_paths need HOST_PATH in allowed');
    const allowedText = allowed.length === 0 ? 'no volume' : allowed.join(', ');
    return ({ spec: { volumes } }) => {
      if (volumes.length === 0) return SATISFIED;
      return volumes.flatMap((volume, index) => {
        const field = `spec.volumes[${index}]`;
        const { source } = volume;
        const type = source.case === undefined ? undefined : VOLUME_TYPES[source.case];
        if (type === undefined || !allowed.includes(type))
          return [{ field, found: type ?? 'no source', allowed: allowedText }];
        if (source.case !== 'hostPath') return [];
        const { path } = source.value;
        if (hostPaths !== undefined && !hostPaths.some((parent) => isAtOrBelow(path, parent)))
          return [
            {
              field: `${field}.host_path.path`,
              found: show(path),
              allowed: `a path at or below ${hostPaths.join(', ')}`,
            },
          ];
        return readOnlyHostPaths === true && !volume.readOnly
          ? [{ field: `${field}.read_only`, found: 'false', allowed: 'true' }]
          : [];
      });
    };
  },
};

/** Returns true for a path without `.` and `..` that is `parent` or below. */
function isAtOrBelow(path: string, parent: string): boolean {
  if (path.split('/').some((segment) => segment === '.' || segment === '..')) return false;
  return path === parent || path.startsWith(`${parent}/`);
}

/** Labels of nodes. */
export const nodeSelector: RuleDefinition<'NODE_SELECTOR'> = {
  needsContainer: false,
  read: (reader) => {
    const config = { ...reader.labels('required'), ...reader.texts('forbidden') };
    reader.requireOneOf('required', 'forbidden');
    return config;
  },
  create: (config) => {
    const required = Object.entries(config.required ?? {});
    const forbidden = config.forbidden ?? [];
    return ({ spec }) => {
      const selector = spec.placement?.nodeSelector ?? {};
      const findings: Finding[] = [];
      for (const [label, values] of required) {
        const value = Object.hasOwn(selector, label) ? selector[label] : undefined;
        if (value !== undefined && (values.length === 0 || values.includes(value))) continue;
        findings.push({
          field: toField(label),
          found: value === undefined ? 'no value' : show(value),
          allowed: values.length === 0 ? 'a value' : values.join(', '),
        });
      }
      for (const label of forbidden) {
        if (!Object.hasOwn(selector, label)) continue;
        const found = show(selector[label]);
        findings.push({ field: toField(label), found, allowed: 'no value' });
      }
      return findings;
    };
  },
};

function toField(label: string): string {
  return `spec.placement.node_selector[${JSON.stringify(label)}]`;
}

/** Amounts that RESOURCE_LIMIT bounds: field of the configuration, path, and value of a spec. */
const AMOUNTS = [
  ['maxCpuMillis', 'limits.cpu_millis', (spec) => spec.resources?.limits?.cpuMillis],
  ['maxMemoryBytes', 'limits.memory_bytes', (spec) => spec.resources?.limits?.memoryBytes],
  ['maxPids', 'limits.pids', (spec) => spec.resources?.limits?.pids],
  ['maxStorageBytes', 'requests.storage_bytes', (spec) => spec.resources?.requests?.storageBytes],
  ['maxBandwidthBps', 'requests.bandwidth_bps', (spec) => spec.resources?.requests?.bandwidthBps],
] as const satisfies readonly (readonly [
  string,
  string,
  (spec: WorkloadSpec) => number | bigint | undefined,
])[];

/** Upper bounds of limits and requests. */
export const resourceLimit: RuleDefinition<'RESOURCE_LIMIT'> = {
  needsContainer: false,
  read: (reader) => {
    const config = {
      ...reader.amount('maxCpuMillis'),
      ...reader.amount('maxMemoryBytes'),
      ...reader.amount('maxPids'),
      ...reader.amount('maxStorageBytes'),
      ...reader.amount('maxBandwidthBps'),
    };
    reader.requireOneOf(...AMOUNTS.map(([key]) => key));
    return config;
  },
  create: (config) => {
    const bounds = AMOUNTS.flatMap(([key, path, read]) => {
      const max = config[key];
      return max === undefined ? [] : [{ max, path, read }];
    });
    return ({ spec }) => {
      const findings: Finding[] = [];
      for (const { max, path, read } of bounds) {
        const amount = read(spec) ?? 0;
        // A limit of 0 means no limit; a request of 0 requests nothing.
        const isUnlimited = Number(amount) === 0 && path.startsWith('limits.');
        if (amount <= max && !isUnlimited) continue;
        const found = isUnlimited ? 'no limit' : String(amount);
        findings.push({ field: `spec.resources.${path}`, found, allowed: `at most ${max}` });
      }
      return findings;
    };
  },
};
