module.exports = { preset: '../../jest.preset.js', displayName: 'cluster-state' };
