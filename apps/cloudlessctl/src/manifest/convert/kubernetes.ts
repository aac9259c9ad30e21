import type { ConvertedDocument, ConvertedObject, DeferredObjects } from './converted-object.js';
import type { ForeignKeys } from './file-references.js';
import { convertIngress } from './kubernetes-ingress.js';
import { takeMetadata } from './kubernetes-metadata.js';
import { convertPod } from './kubernetes-pod.js';
import { convertService } from './kubernetes-service.js';
import { convertStrategy } from './kubernetes-strategy.js';
import { SourceMap, isMap, withoutEmpty } from './source-map.js';
import type { ReportNote } from './source-map.js';

/** Returns true when a document of a file is a Kubernetes object. */
export function isKubernetesObject(document: unknown): boolean {
  return isMap(document) && 'apiVersion' in document && 'kind' in document;
}

/** Replacement for each kind of object that is no workload, for the note. */
const KIND_REASONS: Readonly<Record<string, string>> = {
  CronJob: 'run the job from a scheduler of your own',
  HorizontalPodAutoscaler:
    'change the number with "cloudlessctl scale", and rollout.minAvailable where it is set',
  Job: 'use a workload whose restart policy is ON_FAILURE',
  Namespace: 'a namespace exists as soon as a workload is in it',
  PersistentVolumeClaim: 'use a named volume, which the node keeps',
  PodDisruptionBudget: 'set rollout.minAvailable of the workload',
};

/** Keys of `spec` that have no equivalent, by kind of object or for all kinds. */
const SPEC_REASONS: Readonly<Record<string, string>> = {
  podManagementPolicy: 'replicas start at the same time',
  serviceName: 'a headless service gives each slot a name, such as 0.db',
  volumeClaimTemplates: 'use a named volume, which the node keeps',
};

/**
 * Converts one Kubernetes object. A Deployment, StatefulSet, DaemonSet, ReplicaSet or Pod becomes a
 * workload, a ConfigMap a config, a Service a service, an Ingress one or several routes.
 * @param known - The keys of the ConfigMaps and Secrets of the same input.
 * @returns Empty for every other kind, which is reported. Services need all workloads.
 */
export function convertKubernetes(
  document: unknown,
  known: Omit<ForeignKeys, 'namespace'>,
  report: ReportNote,
): readonly (ConvertedObject | DeferredObjects)[] {
  const object = new SourceMap(document, [], report);
  const kind = object.takeText('kind') ?? '';
  object.ignore('apiVersion', 'status');
  if (kind === 'ConfigMap') return [convertConfigMap(object)];
  if (kind === 'Service') return [(workloads) => [convertService(object, workloads)]];
  if (kind === 'Ingress') return convertIngress(object);
  if (kind === 'Secret') {
    reportSecret(object);
    return [];
  }
  if (!['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'Pod'].includes(kind)) {
    const reason = Object.hasOwn(KIND_REASONS, kind) ? `: ${KIND_REASONS[kind]}` : '';
    object.note('kind', `${kind} has no equivalent${reason}`);
    return [];
  }
  const { namespace, name, labels, ...metadata } = takeMetadata(object, kind);
  const annotations = metadata.annotations.takePairs();
  const spec = object.takeMap('spec');
  object.finish();
  const context = { ...known, namespace: namespace ?? 'default' };
  const { podLabels, ...converted } =
    kind === 'Pod'
      ? { ...convertPod(spec, context), podLabels: labels }
      : convertController(kind, spec, context);
  if (kind === 'StatefulSet')
    object.note('kind', 'StatefulSet: replicas have no fixed names and no volume of their own');
  return [
    {
      kind: 'Workload',
      namespace,
      name,
      podLabels,
      spec: withoutEmpty({ ...converted, labels, annotations }),
    },
  ];
}

/** Converts a ConfigMap, whose name and keys stay as they are. */
function convertConfigMap(object: SourceMap): ConvertedDocument {
  const metadata = object.takeMap('metadata');
  const name = metadata.takeText('name') ?? 'config';
  const namespace = metadata.takeText('namespace');
  const labels = metadata.takeMap('labels').takePairs();
  metadata.ignore('creationTimestamp', 'uid', 'resourceVersion', 'managedFields');
  metadata.finish({ annotations: 'configs have labels only' });
  const body = withoutEmpty({
    labels,
    immutable: object.takeFlag('immutable'),
    data: object.takeMap('data').takePairs(),
    binaryData: object.takeMap('binaryData').takePairs(),
  });
  object.finish();
  return { kind: 'Config', namespace, name, body };
}

/**
 * Names the command that creates a secret. The values of the file are in no message. Routes use a
 * secret only when it permits them; with an audience, workloads need to be permitted too.
 */
function reportSecret(object: SourceMap): void {
  const metadata = object.takeMap('metadata');
  const name = metadata.takeText('name') ?? 'NAME';
  const namespace = metadata.takeText('namespace') ?? 'default';
  const type = object.takeText('type') ?? '';
  const keys = [...object.takeMap('data').keys, ...object.takeMap('stringData').keys];
  const options = keys.map((key) => ` --from-file ${key}=PATH`).join('') || ' --from-file KEY=PATH';
  const isTls = type === 'kubernetes.io/tls';
  const audience = isTls ? ` --audience 'route/${namespace}.*'` : '';
  const use = isTls
    ? ` (for tls.certificateSecret of routes; workloads that use the secret need --audience 'workload/${namespace}.*' too)`
    : type === 'kubernetes.io/dockerconfigjson'
      ? ' (for imagePull.secret)'
      : '';
  object.note(
    'kind',
    `left out, because manifests have no values of secrets; create the secret with: cloudlessctl secret create ${name}${audience}${options}${use}`,
  );
}

function convertController(
  kind: string,
  spec: SourceMap,
  context: Parameters<typeof convertPod>[1],
): Record<string, unknown> & { readonly podLabels: Readonly<Record<string, string>> } {
  const template = spec.takeMap('template');
  const metadata = template.takeMap('metadata');
  const podLabels = metadata.takeMap('labels').takePairs();
  metadata.ignore('creationTimestamp', 'name');
  metadata.finish();
  const replicas = kind === 'DaemonSet' ? undefined : spec.takeInteger('replicas');
  const deadline = spec.takeInteger('progressDeadlineSeconds');
  const minReady = spec.takeInteger('minReadySeconds');
  spec.ignore('selector', 'revisionHistoryLimit');
  const fields = {
    ...convertPod(template.takeMap('spec'), context),
    ...withoutEmpty({
      mode: kind === 'DaemonSet' ? 'GLOBAL' : undefined,
      replicas: kind === 'DaemonSet' ? undefined : (replicas ?? 1),
      rollout: withoutEmpty({
        ...convertStrategy(kind, spec, replicas ?? 1),
        progressDeadline: deadline === undefined ? undefined : `${deadline}s`,
        minReadyDuration: minReady === undefined ? undefined : `${minReady}s`,
      }),
    }),
  };
  template.finish();
  if (spec.takeFlag('paused') === true)
    spec.note('paused', 'has no equivalent: pause the rollout with "cloudlessctl rollout pause"');
  spec.finish(SPEC_REASONS);
  return { ...fields, podLabels };
}
