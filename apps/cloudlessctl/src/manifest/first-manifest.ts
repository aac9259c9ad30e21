/** The choices of a first manifest. */
export interface FirstManifest {
  readonly name: string;
  /** Undefined: a process of the node. */
  readonly image: string | undefined;
  /** Empty: the command of the image. */
  readonly command: readonly string[];
  /** Path of the schema, relative to the manifest. Undefined: none. */
  readonly schemaFile: string | undefined;
}

/** Returns the text of a manifest with comments for a user who has never seen one. */
export function createFirstManifest({ name, image, command, schemaFile }: FirstManifest): string {
  const isContainer = image !== undefined;
  const lines = [
    ...(schemaFile === undefined ? [] : [`# yaml-language-server: $schema=${schemaFile}`]),
    '# Describes one workload. "cloudlessctl explain spec" documents every field, and',
    '# "cloudlessctl apply -f FILE --dry-run" shows what would change.',
    'kind: Workload',
    `name: ${quote(name)}`,
    'spec:',
    ...(isContainer ? [`  image: ${quote(image)} # needs nodes with a container runtime`] : []),
    ...(command.length === 0 ? [] : [`  command: [${command.map(quote).join(', ')}]`]),
    '  replicas: 2',
    '',
    '  ports:',
    '    - name: http',
    isContainer
      ? '      containerPort: 80 # the port that the program listens on'
      : '      containerPort: 8080 # the program must listen on the port in $PORT',
    '  # Until the check passes, a replica is not ready and gets no traffic. Without a probe, every',
    '  # port above must accept connections.',
    '  # readinessProbe:',
    '  #   http: { port: http, path: / }',
    '',
    '  # env:',
    '  #   LOG_LEVEL: info',
    '',
    '  resources:',
    '    requests: # reserved on the node',
    '      cpuMillis: 100m',
    '      memoryBytes: 64Mi',
    ...(isContainer ? ['    limits: # enforced by the kernel', '      memoryBytes: 256Mi'] : []),
    '',
    '  # A new version replaces the replicas one by one. With steps, part of the replicas first:',
    '  # rollout:',
    '  #   steps:',
    '  #     - { percent: 20, promotion: MANUAL } # then: cloudlessctl rollout promote',
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns a YAML scalar: plain when the text is safe without quotes, else in double quotes. */
function quote(text: string): string {
  return /^[a-z][\w./:@-]*$/.test(text) &&
    !/^(?:y|n|yes|no|on|off|true|false|null)$/.test(text) &&
    !/:$/.test(text)
    ? text
    : JSON.stringify(text);
}
