import { convertProbe } from './kubernetes-probe.js';
import { convertPodVolumes } from './kubernetes-volumes.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';
import { toCpu } from './words.js';

/** The other objects of the input that a pod may refer to. */
export interface PodContext {
  readonly namespace: string;
  /** Data of the ConfigMaps by `namespace/name`. */
  readonly configMaps: ReadonlyMap<string, Readonly<Record<string, string>>>;
}

const POD_REASONS: Readonly<Record<string, string>> = {
  affinity: 'use placement.affinity and placement.antiAffinity',
  imagePullSecrets: 'secrets are not supported yet',
  initContainers: 'do such work in the entry point of the image',
  nodeName: 'use placement.nodeSelector',
  priorityClassName: 'use priority',
  serviceAccountName: 'workloads have no account at the cluster',
  topologySpreadConstraints: 'use placement.spread',
};

const CONTAINER_REASONS: Readonly<Record<string, string>> = {
  lifecycle: 'use preStopDelay for a wait before SIGTERM',
  stdin: 'use "cloudlessctl exec -it"',
  tty: 'use "cloudlessctl exec -it"',
};

/** Converts the spec of a pod to fields of a workload's spec. Only the first container is used. */
export function convertPod(pod: SourceMap, context: PodContext): Record<string, unknown> {
  const [container, ...others] = pod.takeMaps('containers');
  for (const other of others) {
    const name = other.takeText('name') ?? '';
    other.report(
      other.path,
      `left out: a workload has one container; make ${name} a workload of its own`,
    );
  }
  const podSecurity = pod.takeMap('securityContext');
  const volumes = pod.takeMaps('volumes');
  pod.ignore('dnsPolicy', 'schedulerName', 'automountServiceAccountToken', 'enableServiceLinks');
  const grace = pod.takeInteger('terminationGracePeriodSeconds');
  const fields = withoutEmpty({
    ...(container === undefined ? {} : convertContainer(container, podSecurity, volumes, context)),
    restart: convertRestart(pod.takeText('restartPolicy')),
    // The default of Kubernetes, which differs from that of a manifest.
    terminationGracePeriod: `${grace ?? 30}s`,
    placement: withoutEmpty({
      nodeSelector: pod.takeMap('nodeSelector').takePairs(),
      tolerations: pod.takeMaps('tolerations').map(convertToleration),
    }),
    network: withoutEmpty({
      hostNetwork: pod.takeFlag('hostNetwork'),
      hostname: pod.takeText('hostname'),
      extraHosts: pod.takeMaps('hostAliases').map((alias) => ({
        ip: alias.takeText('ip'),
        hostnames: alias.takeTexts('hostnames'),
      })),
    }),
  });
  podSecurity.finish();
  pod.finish(POD_REASONS);
  return fields;
}

function convertRestart(policy: string | undefined): Record<string, unknown> {
  return withoutEmpty({ policy: { OnFailure: 'ON_FAILURE', Never: 'NEVER' }[policy ?? ''] });
}

function convertToleration(toleration: SourceMap): Record<string, unknown> {
  const seconds = toleration.takeInteger('tolerationSeconds');
  const fields = withoutEmpty({
    key: toleration.takeText('key'),
    operator: toleration.takeText('operator') === 'Exists' ? 'EXISTS' : undefined,
    value: toleration.takeText('value'),
    effect: {
      NoSchedule: 'NO_SCHEDULE',
      PreferNoSchedule: 'PREFER_NO_SCHEDULE',
      NoExecute: 'NO_EXECUTE',
    }[toleration.takeText('effect') ?? ''],
    tolerationPeriod: seconds === undefined ? undefined : `${seconds}s`,
  });
  toleration.finish();
  return fields;
}

function convertContainer(
  container: SourceMap,
  podSecurity: SourceMap,
  volumes: readonly SourceMap[],
  context: PodContext,
): Record<string, unknown> {
  container.ignore('name', 'terminationMessagePath', 'terminationMessagePolicy');
  const resources = container.takeMap('resources');
  const fields = {
    image: container.takeText('image'),
    command: container.takeTexts('command'),
    args: container.takeTexts('args'),
    env: convertEnv(container, context),
    workingDir: container.takeText('workingDir'),
    ports: container.takeMaps('ports').map(convertPort),
    resources: withoutEmpty({
      requests: convertAmounts(resources.takeMap('requests')),
      limits: convertAmounts(resources.takeMap('limits')),
    }),
    livenessProbe: convertProbe(container.takeMap('livenessProbe')),
    readinessProbe: convertProbe(container.takeMap('readinessProbe')),
    startupProbe: convertProbe(container.takeMap('startupProbe')),
    security: convertSecurity(container.takeMap('securityContext'), podSecurity),
    imagePull: convertImagePull(container),
    volumes: convertPodVolumes(container, volumes),
  };
  resources.finish();
  container.finish(CONTAINER_REASONS);
  return fields;
}

function convertImagePull(container: SourceMap): Record<string, unknown> {
  const policy = container.takeText('imagePullPolicy') ?? '';
  return withoutEmpty({ policy: { Always: 'ALWAYS', Never: 'NEVER' }[policy] });
}

function convertEnv(
  container: SourceMap,
  { configMaps, namespace }: PodContext,
): Record<string, string> {
  const env: Record<string, string> = {};
  for (const source of container.takeMaps('envFrom')) {
    const reference = source.takeMap('configMapRef').takeText('name');
    const prefix = source.takeText('prefix') ?? '';
    const data = configMaps.get(`${namespace}/${reference}`);
    if (data === undefined)
      source.report(source.path, 'left out: its ConfigMap is not in this input');
    else for (const [key, value] of Object.entries(data)) env[`${prefix}${key}`] = value;
    source.finish({ secretRef: 'secrets are not supported yet' });
  }
  for (const variable of container.takeMaps('env')) {
    const name = variable.takeText('name') ?? '';
    const value = variable.takeText('value');
    const reference = variable.takeMap('valueFrom').takeMap('configMapKeyRef');
    const key = reference.takeText('key');
    const data = configMaps.get(`${namespace}/${reference.takeText('name')}`);
    const text = value ?? (key === undefined ? undefined : data?.[key]);
    if (text !== undefined) env[name] = text;
    else if (variable.keys.includes('valueFrom'))
      variable.note('valueFrom', `${name} was left out: write the value`);
    else env[name] = '';
  }
  return env;
}

function convertPort(port: SourceMap): Record<string, unknown> {
  const fields = withoutEmpty({
    name: port.takeText('name'),
    containerPort: port.takeInteger('containerPort'),
    hostPort: port.takeInteger('hostPort'),
    protocol: port.takeText('protocol') === 'UDP' ? 'UDP' : undefined,
  });
  port.finish();
  return fields;
}

function convertAmounts(amounts: SourceMap): Record<string, unknown> {
  const text = amounts.takeText('cpu');
  const cpu = text === undefined ? undefined : toCpu(text);
  if (cpu !== undefined && 'problem' in cpu) amounts.note('cpu', `left out: ${cpu.problem}`);
  const fields = withoutEmpty({
    cpuMillis: cpu !== undefined && 'value' in cpu ? cpu.value : undefined,
    memoryBytes: amounts.takeText('memory'),
  });
  amounts.finish();
  return fields;
}

/** The settings of the container take precedence over those of the pod. */
function convertSecurity(container: SourceMap, pod: SourceMap): Record<string, unknown> {
  const capabilities = container.takeMap('capabilities');
  const canEscalate = container.takeFlag('allowPrivilegeEscalation');
  const profile = container.takeMap('seccompProfile');
  const podProfile = pod.takeMap('seccompProfile');
  const type = profile.takeText('type') ?? podProfile.takeText('type');
  const local = profile.takeText('localhostProfile') ?? podProfile.takeText('localhostProfile');
  if (type === 'Localhost')
    profile.report(
      profile.path,
      `${local ?? ''} was left out: use seccompProfile with an absolute path`,
    );
  const fields = withoutEmpty({
    runAsNonRoot: container.takeFlag('runAsNonRoot') ?? pod.takeFlag('runAsNonRoot'),
    runAsUser: container.takeInteger('runAsUser') ?? pod.takeInteger('runAsUser'),
    runAsGroup: container.takeInteger('runAsGroup') ?? pod.takeInteger('runAsGroup'),
    readOnlyRootFilesystem: container.takeFlag('readOnlyRootFilesystem'),
    capabilitiesAdd: capabilities.takeTexts('add'),
    capabilitiesDrop: capabilities.takeTexts('drop'),
    seccompProfile: type === 'RuntimeDefault' || type === 'Unconfined' ? type : undefined,
    privileged: container.takeFlag('privileged'),
    noNewPrivileges: canEscalate === undefined ? undefined : !canEscalate,
    supplementalGroups: pod.takeTexts('supplementalGroups').map(Number),
    fsGroup: pod.takeInteger('fsGroup'),
  });
  pod.ignore('runAsNonRoot', 'runAsUser', 'runAsGroup');
  capabilities.finish();
  container.finish();
  return fields;
}
