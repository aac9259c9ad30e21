import { takeFileItems, takeFileSource, type FileReferences } from './file-references.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';
import { toDnsLabel } from './words.js';

const SOURCE_REASONS: Readonly<Record<string, string>> = {
  projected: 'use secrets and configs of the spec, each in a directory of its own',
};

/**
 * Converts the mounts of a container together with the volumes of its pod.
 * @param volumes - The list `volumes` of the pod.
 * @param references - Receives the volumes of ConfigMaps and Secrets.
 */
export function convertPodVolumes(
  container: SourceMap,
  volumes: readonly SourceMap[],
  references: FileReferences,
): readonly Record<string, unknown>[] {
  const sources = new Map(
    volumes.map((volume) => [volume.takeText('name') ?? '', convertSource(volume)] as const),
  );
  return container.takeMaps('volumeMounts').flatMap((mount) => {
    const name = mount.takeText('name') ?? '';
    const mountPath = mount.takeText('mountPath');
    const readOnly = mount.takeFlag('readOnly');
    const source = sources.get(name);
    const hasFiles = source !== undefined && 'noun' in source;
    if (hasFiles && mount.keys.includes('subPath')) {
      mount.note('subPath', 'left out: an object is mounted as a directory, not as one file');
      return [];
    }
    mount.finish();
    if (hasFiles) {
      const problem = references.addFiles(source.noun, source.name, {
        ...{ mountPath: mountPath ?? '', mode: source.mode, items: source.items },
      });
      if (problem !== undefined) mount.report(mount.path, problem);
      return [];
    }
    if (source === undefined) {
      mount.report(mount.path, `left out: the volume ${name} was not converted`);
      return [];
    }
    return [{ ...withoutEmpty({ name, mountPath, readOnly }), ...source }];
  });
}

/** The source of a volume in the form of a manifest. */
interface VolumeFields {
  readonly emptyDir?: unknown;
  readonly hostPath?: unknown;
  readonly named?: unknown;
}

/** The files of a ConfigMap or Secret that a volume has. */
type FileSource = ReturnType<typeof takeFileItems> &
  Omit<NonNullable<ReturnType<typeof takeFileSource>>, 'source'>;

/** Returns the source of a volume; undefined when it has no equivalent, which is reported. */
function convertSource(volume: SourceMap): VolumeFields | FileSource | undefined {
  const files = takeFileSource(volume);
  if (files !== undefined) {
    volume.finish();
    const { noun, name } = files;
    return { noun, name, ...takeFileItems(files.source) };
  }
  let source: VolumeFields | undefined;
  if (volume.keys.includes('emptyDir')) {
    const directory = volume.takeMap('emptyDir');
    const medium = directory.takeText('medium') === 'Memory' ? 'MEMORY' : undefined;
    const sizeLimitBytes = directory.takeText('sizeLimit');
    if (sizeLimitBytes !== undefined && medium === undefined)
      directory.note('sizeLimit', 'left out: only directories in memory have a limit');
    source = {
      emptyDir: withoutEmpty({
        medium,
        sizeLimitBytes: medium === undefined ? undefined : sizeLimitBytes,
      }),
    };
    directory.finish();
  } else if (volume.keys.includes('hostPath')) {
    const host = volume.takeMap('hostPath');
    source = { hostPath: { path: host.takeText('path') } };
    host.ignore('type');
    host.report(host.path, 'the agents of the nodes must allow the path (--allow-host-path)');
    host.finish();
  } else if (volume.keys.includes('persistentVolumeClaim')) {
    const claim = volume.takeMap('persistentVolumeClaim');
    const name = toDnsLabel(claim.takeText('claimName') ?? '');
    claim.ignore('readOnly');
    claim.report(
      claim.path,
      `became the named volume ${name}, which each node keeps on its own disk`,
    );
    source = { named: { name } };
  }
  volume.finish(SOURCE_REASONS);
  return source;
}
