import { FileReferences, type ForeignKeys } from './file-references.js';
import type { ConvertedPort } from './converted-object.js';
import { convertProbes } from './kubernetes-probe.js';
import { convertPodVolumes } from './kubernetes-volumes.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';
import { toCpu } from './words.js';

const POD_REASONS: Readonly<Record<string, string>> = {
  affinity: 'use placement.affinity and placement.antiAffinity',
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
export function convertPod(pod: SourceMap, context: ForeignKeys): Record<string, unknown> {
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
  const pullSecret = takePullSecret(pod);
  const references = new FileReferences(context);
  const grace = pod.takeInteger('terminationGracePeriodSeconds');
  const fields = withoutEmpty({
    ...(container === undefined
      ? {}
      : convertContainer(container, { podSecurity, volumes, references, pullSecret })),
    ...references.build(pod.report, pod.path),
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

/** Takes the first of the secrets for the registry of the image. */
function takePullSecret(pod: SourceMap): string | undefined {
  const [first, ...others] = pod.takeMaps('imagePullSecrets').map((secret) => {
    const name = secret.takeText('name');
    secret.finish();
    return name;
  });
  if (others.length > 0)
    pod.note('imagePullSecrets', `${others.join(', ')} was left out: an image has one pull secret`);
  return first;
}

/** The parts of a pod that its container uses. */
interface PodParts {
  readonly podSecurity: SourceMap;
  readonly volumes: readonly SourceMap[];
  readonly references: FileReferences;
  readonly pullSecret: string | undefined;
}

function convertContainer(
  container: SourceMap,
  { podSecurity, volumes, references, pullSecret }: PodParts,
): Record<string, unknown> {
  container.ignore('name', 'terminationMessagePath', 'terminationMessagePolicy');
  const ports = container.takeMaps('ports').map(convertPort);
  const probes = convertProbes(container, ports);
  const fields = {
    image: container.takeText('image'),
    command: container.takeTexts('command'),
    args: container.takeTexts('args'),
    env: convertEnv(container, references),
    workingDir: container.takeText('workingDir'),
    resources: convertResources(container.takeMap('resources')),
    ...probes,
    security: convertSecurity(container.takeMap('securityContext'), podSecurity),
    imagePull: convertImagePull(container, pullSecret),
    volumes: convertPodVolumes(container, volumes, references),
  };
  container.finish(CONTAINER_REASONS);
  return fields;
}

function convertImagePull(
  container: SourceMap,
  secret: string | undefined,
): Record<string, unknown> {
  const policy = container.takeText('imagePullPolicy') ?? '';
  return withoutEmpty({ policy: { Always: 'ALWAYS', Never: 'NEVER' }[policy], secret });
}

/** The kind of object of each reference of a variable. */
const REFERENCE_NOUNS = {
  configMapRef: 'config',
  secretRef: 'secret',
  configMapKeyRef: 'config',
  secretKeyRef: 'secret',
} as const;

function convertEnv(container: SourceMap, references: FileReferences): Record<string, string> {
  for (const source of container.takeMaps('envFrom')) {
    const prefix = source.takeText('prefix') ?? '';
    for (const key of ['configMapRef', 'secretRef'] as const) {
      if (!source.keys.includes(key)) continue;
      const reference = source.takeMap(key);
      const name = reference.takeText('name') ?? '';
      noteOptional(reference);
      if (!references.addVariables(REFERENCE_NOUNS[key], name, prefix))
        source.report(
          source.path,
          `left out: ${name} is not in this input; write each key to keys of spec.${REFERENCE_NOUNS[key]}s`,
        );
    }
    source.finish();
  }
  const env: Record<string, string> = {};
  for (const variable of container.takeMaps('env')) {
    const name = variable.takeText('name') ?? '';
    const value = variable.takeText('value');
    if (!variable.keys.includes('valueFrom')) env[name] = value ?? '';
    else if (!addReference(variable.takeMap('valueFrom'), name, references))
      variable.note('valueFrom', `${name} was left out: write the value`);
  }
  return env;
}

/** @returns False when the value is from no ConfigMap and no Secret. */
function addReference(source: SourceMap, env: string, references: FileReferences): boolean {
  for (const kind of ['configMapKeyRef', 'secretKeyRef'] as const) {
    if (!source.keys.includes(kind)) continue;
    const reference = source.takeMap(kind);
    const name = reference.takeText('name');
    const key = reference.takeText('key');
    noteOptional(reference);
    if (name === undefined || key === undefined) return false;
    references.addVariable(REFERENCE_NOUNS[kind], name, key, env);
    return true;
  }
  return false;
}

function noteOptional(reference: SourceMap): void {
  if (reference.takeFlag('optional') === true)
    reference.note('optional', 'left out: the object must exist');
  reference.finish();
}

function convertPort(port: SourceMap): ConvertedPort {
  const protocol = port.takeText('protocol') ?? 'TCP';
  if (protocol !== 'TCP' && protocol !== 'UDP')
    port.note('protocol', `${protocol} has no equivalent: became TCP`);
  const fields: ConvertedPort = withoutEmpty({
    name: port.takeText('name'),
    containerPort: port.takeInteger('containerPort'),
    hostPort: port.takeInteger('hostPort'),
    protocol: protocol === 'UDP' ? 'UDP' : undefined,
  });
  port.finish();
  return fields;
}

/** A limit is also the request of a resource that has no request, as in Kubernetes. */
function convertResources(resources: SourceMap): Record<string, unknown> {
  const limits = convertAmounts(resources.takeMap('limits'));
  const requests = convertAmounts(resources.takeMap('requests'));
  resources.finish();
  return withoutEmpty({ requests: { ...limits, ...requests }, limits });
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
